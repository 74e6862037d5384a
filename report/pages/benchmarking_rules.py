"""The twelve rules by Hoefler and Belli (SC15) in our words, and how this study follows each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A benchmarking rule.

    asks: the rule in our words.
    met: this study's way of following the rule.
    """

    asks: str
    met: str


RULES = (
    Rule(
        "A speed-up names its base case and gives the absolute performance of one side.",
        "Each quantity that is a multiple says of what; a claim's number names the rows it is made from with their "
        "values; a section that tells ratios tells rates or times beside them.",
    ),
    Rule(
        "If a part of the cases is shown, say why.",
        "What was left out is listed with its reason, point by point; figures and tables that show the cases nearest "
        "to the threshold say so.",
    ),
    Rule(
        "Costs are averaged arithmetically, rates harmonically.",
        "Nothing is averaged over cases: each stands for itself. Rounds are summarised by the mean of logarithms of "
        "times, which is the same for a time and for its rate.",
    ),
    Rule(
        "Ratios are not averaged.",
        "A ratio is the difference of two estimates on the log scale, never a mean of ratios over cases.",
    ),
    Rule(
        "Say whether a value is exact; give intervals for what varies.",
        "Counted and published figures are exact; all else has an interval, or the reason why none is known.",
    ),
    Rule(
        "Do not take values for normal without a look.",
        "Times are summarised by the median of a round, and intervals rest on rounds; their coverage was simulated "
        "with heavy tails and unequal variances.",
    ),
    Rule(
        "Compare what varies by intervals or tests.",
        "An interval on one side of the threshold decides, else the case is undecided.",
    ),
    Rule(
        "Choose centres and percentiles that fit the question.",
        "Medians for the time of work; the 99th percentile, from rounds with enough samples, where a claim is about "
        "waiting.",
    ),
    Rule(
        "Document what was varied, and all of the set-up.",
        "Each node's fingerprint, versions and options are in its record; the points' parameters are in the data.",
    ),
    Rule(
        "In parallel work, say how it was timed, synchronised and summarised.",
        "Devices are synchronised before a host clock is read; the number of rounds and of samples is told with each "
        "case, and for all points together.",
    ),
    Rule(
        "Show bounds beside the results.",
        "Measured peaks, bandwidths and the roofline are drawn as ceilings in the figures of rates.",
    ),
    Rule(
        "Join points only where values between them mean something.",
        "Lines run along sizes, numbers of threads, loads and time, never from one category to the next.",
    ),
)
