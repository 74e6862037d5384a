"""Checks on the rules by simulated measurements with a known truth; the table comes from `studies.calibration`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contract.errors import StudyError
from report import statistics
from report.formatting import join_words, range_words
from report.pages.chart_rows import alt_text, as_percent
from report.pages.charts import Chart, estimate_chart
from report.pages.exhibit_types import Exhibit, Table

# Target error rate: at most this fraction of single results should be wrongly supported, and at most this fraction
# wrongly challenged.
RARE = 0.01
Record = dict[str, Any]
# Questions over many results that share a label in the chart, by the beginning of their keys.
_KINDS = {
    "most 0": "most results, 4 of 10 fail narrowly",
    "every 0": "every result, 4 of 10 fail narrowly",
    "spread list": "a chosen list, spread around the threshold",
    "near list": "a chosen list, its larger side at the threshold",
}
_SETTING = ["Question", "Noise", "Rounds", "Results"]
_RATIO, _LOG_ODDS, _LINEAR = (
    "ratio of two devices", "share of time, by its log odds", "share of time, on the linear scale",
)  # fmt: skip


def simulated_exhibits(table: Any, names: Mapping[str, str]) -> Iterable[Exhibit]:
    """Show error rates of verdicts, coverage of intervals, rounds on demand, sessions, and the simulated noise.

    table: content of data/calibration.json, or None without one. names: the nodes' names by id. Raises StudyError if
    the table was made for another confidence level than verdicts use now.
    """
    if table is None:
        return
    if table["level"] != statistics.DECIDING:
        raise StudyError(
            "data/calibration.json: level: was made for rules that decide by other intervals: make it again"
        )
    rows = [{**row, "question": _name_results(row["question"])} for row in table["rows"]]
    yield _single_exhibit([row for row in rows if not row["many"]])
    yield _many_exhibit([row for row in rows if row["many"]])
    yield _coverage_exhibit(table["coverage"])
    yield _looks_exhibit(table["looks"])
    yield _sessions_exhibit(table["sessions"])
    yield _noise_exhibit(table["noises"], names)


def repetition_coverage(table: Any, level: float) -> str:
    """Return the range of percentages in which a simulated ratio's interval holds the truth, with noise as on nodes."""
    noises = {row["of"] for row in table["noises"]}
    rows = [row for row in table["coverage"] if row["quantity"] == _RATIO and row["noise"] in noises]
    return _percent_range([_level_entry(row, level)["share"] for row in rows], 0)


def _name_results(question: str) -> str:
    return question.replace("point", "result")


def _worst(row: Record) -> Record:
    """Return the rate of the row's most frequent wrong answer."""
    return dict(max((row[answer] for answer in row["wrong"]), key=lambda rate: float(rate["share"])))


def _percent_range(shares: Sequence[float], digits: int = 1) -> str:
    return range_words(*(f"{100 * share:.{digits}f}%" for share in (min(shares), max(shares))))


def _rate_row(label: str, rate: Record, digits: int = 2, **more: Any) -> Record:
    """Return a chart row for a rate, in percent."""
    ends = {end: 100 * rate[name] for end, name in (("estimate", "share"), ("low", "low"), ("high", "high"))}
    return {"label": label, **ends, "text": f"{100 * rate['share']:.{digits}f}%", **more}


def _worst_by(rows: Iterable[Record], key: str) -> dict[Any, Record]:
    """Return the worst rate for each value of a key, in order of appearance."""
    worst: dict[Any, Record] = {}
    for row in rows:
        rate = _worst(row)
        if row[key] not in worst or rate["share"] > worst[row[key]]["share"]:
            worst[row[key]] = rate
    return worst


def _setting_cells(row: Record) -> list[str]:
    """Return the table cells for a setting, in the order of _SETTING."""
    return [row["question"], row["noise"], str(row["rounds"]), str(row["points"])]


def _single_exhibit(settings: list[Record]) -> Exhibit:
    """Show how often single results err."""
    largest = max(row["session"] for row in settings)
    apart = [row for row in settings if row["session"] == largest > 0]
    by_question = _worst_by((row for row in settings if not row["session"]), "question")
    groups = "Rounds differ by chance alone", f"Sessions differ {as_percent(largest)} as much as rounds"
    rows = [
        *(_rate_row(question, rate, group=groups[0]) for question, rate in by_question.items()),
        *(
            _rate_row(f"{rounds} rounds in one session", rate, group=groups[1])
            for rounds, rate in _worst_by(apart, "rounds").items()
        ),
    ]
    most = max(rate["share"] for rate in by_question.values())
    trials = sum(row["trials"] for row in settings)
    sessions = [
        f"{_percent_range([_worst(row)['share'] for row in apart if row['rounds'] == rounds])} with {rounds} rounds"
        for rounds in dict.fromkeys(row["rounds"] for row in apart)
    ]
    return Exhibit(
        Chart(
            "checks-simulated",
            f"In simulations with a known answer, at most {100 * most:.2f}% of single results were wrongly decided to "
            "one side, if rounds differ by chance alone",
            estimate_chart(rows, "wrong results in the worst setting (%)", [100 * RARE],
                           "the intended maximum", log=False),
            f"Simulated: {trials:,} results in {len(settings)} settings of noise, rounds and results, each with the "
            "truth right at the threshold. Bars: intervals of the simulation.",
            alt_text(rows),
        ),
        ["With the truth at the threshold, every verdict but 'too close to call' counts as an error.",
         *([f"If sessions differ {as_percent(largest)} as much as rounds do, and all rounds come from one session, "
            f"results are wrongly decided to one side in {join_words(sessions)}."] if apart else [])],
        Table([*_SETTING, "Wrongly supported", "Wrongly challenged", "Undecided"],
              [[*_setting_cells(row),
                *(f"{100 * row[name]['share']:.2f}%" for name in ("supported", "challenged")),
                f"{100 * row['undecided']['share']:.1f}%"] for row in settings], "llrrrrr",
              "Single results in all simulated settings"),
    )  # fmt: skip


def _many_exhibit(settings: list[Record]) -> Exhibit:
    """Show how often verdicts over many results err."""
    labels = [next((_KINDS[kind] for kind in _KINDS if row["key"].startswith(kind)), row["question"])
              for row in settings]  # fmt: skip
    worst = _worst_by([{**row, "label": label} for row, label in zip(settings, labels, strict=True)], "label")
    rows = [_rate_row(label, rate) for label, rate in worst.items()]
    errors = {kind: as_percent(worst[_KINDS[kind]]["share"]) for kind in _KINDS}
    most = _percent_range([row["supported"]["share"] for row in settings if row["key"].startswith("most 0")])
    holding = max((row for row in settings if row["key"] == "most, half at"), key=lambda row: int(row["points"]))
    depends = max(row["depends"]["share"] for row in settings
                  if row["key"] == holding["key"] and row["points"] == holding["points"])  # fmt: skip
    return Exhibit(
        Chart(
            "checks-simulated-many",
            f"In simulations where all of {holding['points']} results hold, {as_percent(depends)} of verdicts are "
            "'depends', even if half of the results lie at the threshold",
            estimate_chart(rows, "wrong verdicts in the worst setting (%)", [100 * RARE],
                           "the intended maximum for a single result", log=False),
            f"Simulated: {sum(row['trials'] for row in settings):,} verdicts in {len(settings)} settings. Bars: "
            "intervals of the simulation.",
            alt_text(rows),
        ),
        [f"If 4 of 10 results fail narrowly, a claim about every result is supported in at most {errors['every 0']}, "
         f"and a claim about most results in {most}.",
         f"The count of a chosen list errs in at most {errors['spread list']} if its values are spread around the "
         f"threshold, and in at most {errors['near list']} if its larger side lies right at the threshold."],
        Table([*_SETTING, "Supported", "Challenged", "Depends", "Errors"],
              [[*_setting_cells(row),
                *(f"{100 * row[name]['share']:.1f}%" for name in ("supported", "challenged", "depends")),
                join_words(row["wrong"])] for row in settings], "llrrrrrl",
              "Verdicts over many results in all simulated settings"),
    )  # fmt: skip


def _level_entry(row: Record, level: float) -> Record:
    return dict(next(entry for entry in row["covered"] if entry["level"] == level))


def _coverage_exhibit(coverage: list[Record]) -> Exhibit:
    """Show how often intervals hold the truth, and how wide they are."""
    level, fewest = statistics.DECIDING, min(row["rounds"] for row in coverage)
    levels = [entry["level"] for entry in coverage[0]["covered"]]
    used = [row for row in coverage if row["quantity"] != _LINEAR]
    rows = [
        _rate_row(_name_results(row["quantity"]), _level_entry(row, level), group=row["noise"])
        for row in sorted(used, key=lambda row: str(row["noise"]))
        if row["rounds"] == fewest
    ]
    widths = {(row["quantity"], row["noise"]): _level_entry(row, level)["width"]
              for row in coverage if row["rounds"] == fewest}  # fmt: skip
    narrower = [widths[_LOG_ODDS, noise] / width for (quantity, noise), width in widths.items() if quantity == _LINEAR]
    low = min(used, key=lambda row: float(_level_entry(row, min(levels))["share"]))
    least = _level_entry(low, min(levels))["share"]
    ratio = range_words(*(f"{end(narrower):.2f}" for end in (min, max)))
    return Exhibit(
        Chart(
            "checks-simulated-coverage",
            f"In simulations, {level:.0%} intervals include the true value in "
            f"{_percent_range([_level_entry(row, level)['share'] for row in used])} of trials",
            estimate_chart(rows, f"{level:.0%} intervals that include the true value, {fewest} rounds "
                                 "(%)", [100 * level],
                           "the intervals' level", log=False),
            f"Simulated: {coverage[0]['intervals']:,} intervals for each row. Bars: intervals of the simulation.",
            alt_text(rows),
        ),
        [f"With {fewest} rounds, the interval of a share of time is {ratio} times as wide by its log odds, as used "
         "here, as on the linear scale.",
         f"At {min(levels):.0%}, intervals hold the undisturbed truth in {as_percent(least)} or more; fewest with "
         f"{low['noise']} and {low['rounds']} rounds. Slow rounds shift the mean to one side, which more rounds do not "
         "mend."],
        Table(["Quantity", "Noise", "Rounds", *(f"Within {level:.0%}" for level in levels),
               f"Median width at {level:.0%}"],
              [[_name_results(row["quantity"]), row["noise"], str(row["rounds"]),
                *(f"{100 * _level_entry(row, level)['share']:.1f}%" for level in levels),
                f"{_level_entry(row, level)['width']:.2g}"] for row in coverage], "llrrrr",
              "Coverage and width; the width is of the logarithm, or of the share"),
    )  # fmt: skip


def _scheme(row: Record) -> str:
    looks = [str(look) for look in row["looks"]]
    return f"after {join_words(looks)} rounds" if len(looks) > 1 else f"after {looks[0]} rounds only"


def _looks_exhibit(table: list[Record]) -> Exhibit:
    """Compare rounds on demand to fixed numbers of rounds."""
    rows = [_rate_row(_scheme(row), row["decided"], 0, group=row["noise"]) for row in table]
    demand = [row for row in table if len(row["looks"]) > 1]
    fixed = [row for row in table if row["looks"] == demand[0]["looks"][-1:]]
    mean = range_words(*(f"{end(row['rounds'] for row in demand):.1f}" for end in (min, max)))
    shares = [_percent_range([row["decided"]["share"] for row in kind], 0) for kind in (demand, fixed)]
    wrong = max(row[side]["share"] for row in demand for side in ("above", "below"))
    return Exhibit(
        Chart(
            "checks-simulated-looks",
            f"In simulations, results judged {_scheme(demand[0])} are decided in {shares[0]} of trials, in {mean} "
            "rounds on "
            f"average; {fixed[0]['looks'][0]} rounds of every result decide {shares[1]}",
            estimate_chart(rows, "results that are decided (%)", log=False),
            f"Simulated: {table[0]['trials']:,} results for each row, whose distances to the threshold are spread "
            "evenly up to six times the rounds' spread.",
            alt_text(rows),
        ),
        ["In this simulation, an undecided result is measured in more rounds, and judged by intervals at "
         f"{demand[0]['level']:.1%}. With the truth at the threshold, at most {100 * wrong:.2f}% are wrongly decided "
         "to one side."],
        Table(["Judged", "Level", "Noise", "Wrongly above", "Wrongly below", "Decided", "Mean rounds"],
              [[_scheme(row), f"{100 * row['level']:g}%", row["noise"],
                *(f"{100 * row[name]['share']:.2f}%" for name in ("above", "below")),
                f"{100 * row['decided']['share']:.0f}%", f"{row['rounds']:.1f}"] for row in table], "lrlrrrr",
              "Rounds on demand and fixed numbers of rounds"),
    )  # fmt: skip


def _sessions_exhibit(table: list[Record]) -> Exhibit:
    """Compare intervals with and without the spread between sessions."""
    worst = {name: [_worst_side(row[name]) for row in table if row["spread"]] for name in ("without", "included")}
    most = {name: max(rate["share"] for rate in rates) for name, rates in worst.items()}
    labels = {"without": "as if in one session", "included": "with the spread between sessions"}
    rows = [
        _rate_row(
            label,
            max((_worst_side(row[name]) for row in table if row["spread"] == spread), key=lambda rate: rate["share"]),
            group=f"Sessions differ {as_percent(spread)} as much as rounds" if spread else "Sessions do not differ",
        )
        for spread in dict.fromkeys(row["spread"] for row in table)
        for name, label in labels.items()
    ]
    fewest = min(row["anchors"] for row in table)
    wider = [
        row["included"]["width"] / row["without"]["width"]
        for row in table
        if not row["spread"] and row["anchors"] == fewest
    ]
    ratio = range_words(*(f"{end(wider):.2f}" for end in (min, max)))
    return Exhibit(
        Chart(
            "checks-simulated-sessions",
            f"In simulations, intervals with the spread between sessions miss the true value on one side in at most "
            f"{100 * most['included']:.2f}% of trials, and without it in up to {100 * most['without']:.1f}%",
            estimate_chart(rows, "intervals that miss the true value on one side, in the worst setting "
                                 "(%)", [100 * RARE],
                           "the intended maximum", log=False),
            f"Simulated: {table[0]['trials']:,} intervals in each of {len(table)} settings. Bars: intervals of the "
            "simulation.",
            alt_text(rows),
        ),
        [f"The simulated machine has {table[0]['points']} results of three rounds; a second session measures some of "
         "them in two more rounds. Their session means show the spread, for all results.",
         f"If sessions do not differ, {fewest} results in both sessions make intervals {ratio} times as wide: so few "
         "cannot show that the spread is small."],
        Table(["Noise", "Apart", "Alike", "In both", "Errors without", "Errors with", "Width"],
              [[row["noise"], as_percent(row["spread"]), as_percent(row["common"]), str(row["anchors"]),
                *(f"{100 * _worst_side(row[name])['share']:.2f}%" for name in labels),
                f"{row['included']['width'] / row['without']['width']:.2f}"] for row in table], "lrrrrrr",
              "Errors to one side, without and with the spread between sessions; that spread relative to that of "
              "rounds (apart), and its part that all results have in common (alike)"),
    )  # fmt: skip


def _worst_side(errors: Record) -> Record:
    """Return the larger rate of those above and below the truth."""
    return dict(max((errors[side] for side in ("above", "below")), key=lambda rate: float(rate["share"])))


def _noise_exhibit(noises: list[Record], names: Mapping[str, str]) -> Exhibit:
    """Compare the simulated noise to that on published nodes."""
    groups = {"measured": "Published machines", "synthetic": "Simulated"}
    rows = [{"label": names.get(row["of"], row["of"]), "estimate": 100 * row["spread"], "low": None, "high": None,
             "text": f"{100 * row['spread']:.1f}%", "group": groups[row["origin"]]} for row in noises]  # fmt: skip
    spreads = {origin: [row["spread"] for row in noises if row["origin"] == origin] for origin in groups}
    measured = (
        f"on published machines by {_percent_range(spreads['measured'])} in the median; " if spreads["measured"] else ""
    )
    return Exhibit(
        Chart(
            "checks-simulated-noise",
            f"Repeated rounds differ {measured}in simulations by {_percent_range(spreads['synthetic'])}",
            estimate_chart(rows, "median spread between rounds (%)", log=False),
            "● measured on published machines; simulated with noise like theirs.",
            alt_text(rows),
        ),
        ["Unevenness is the spread of the results' own spreads, as logarithms. A result is one-sided "
         "if its slowest round lies farther out than its fastest; a round is slow if it takes over 20% longer.",
         *(["The noise of machines has one-sided outliers."] if all(row["late"] > 0.5 for row in noises) else [])],
        Table(["Rounds of", "Results", "Spread", "Unevenness", "One-sided", "Slow", "Correlation"],
              [[row["label"], f"{noise['points']:,}", row["text"], f"{noise['unevenness']:.2f}",
                *(f"{100 * noise[name]:.0f}%" for name in ("late", "slow")), f"{noise['correlation']:.2f}"]
               for row, noise in zip(rows, noises, strict=True)], "lrrrrrr",
              "Noise between three rounds"),
    )  # fmt: skip
