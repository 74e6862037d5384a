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
        "Each ratio names its base; a claim's number names the rows that it is made from, with their values; a section "
        "with ratios also gives rates or times.",
    ),
    Rule(
        "If only a part of the results is shown, say why.",
        "Everything left out is listed with its reason; figures and tables that show only the results nearest to the "
        "threshold say so.",
    ),
    Rule(
        "Costs are averaged arithmetically, rates harmonically.",
        "Nothing is averaged over results: each stands for itself. Rounds are summarised by the mean of logarithms of "
        "times, which is the same for a time and for its rate.",
    ),
    Rule(
        "Ratios are not averaged.",
        "A ratio is the difference of two estimates on the log scale, never a mean of ratios.",
    ),
    Rule(
        "Say whether a value is exact; give intervals for what varies.",
        "Counts and published numbers are exact; every other number has an interval, or the reason for its absence.",
    ),
    Rule(
        "Do not assume normal distributions without a check.",
        "Times are summarised by the median of a round, and intervals rest on rounds; their coverage was simulated "
        "with heavy tails and unequal variances.",
    ),
    Rule(
        "Compare what varies by intervals or tests.",
        "An interval on one side of the threshold decides, else the result is undecided.",
    ),
    Rule(
        "Choose averages and percentiles that fit the question.",
        "Medians for the time of work; the 99th percentile, from rounds with enough samples, where a claim is about "
        "waiting.",
    ),
    Rule(
        "Document everything that was varied, and the whole set-up.",
        "Each machine's hardware, versions and options are in its record; the parameters of each measurement are in "
        "the data.",
    ),
    Rule(
        "In parallel work, say how it was timed, synchronised and summarised.",
        "Devices are synchronised before a host clock is read; each result states its numbers of rounds and samples.",
    ),
    Rule(
        "Show upper bounds beside the results.",
        "Measured peaks, bandwidths and the roofline are drawn as ceilings in the figures of rates.",
    ),
    Rule(
        "Join points only where values between them mean something.",
        "Lines run along sizes, numbers of threads, loads and time, never from one category to the next.",
    ),
)
