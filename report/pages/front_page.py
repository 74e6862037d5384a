"""Build the front page: answer, chart, verdicts by article, findings, advice and confidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from report import formatting
from report.findings import sentence_number
from report.formatting import format_count, two_digits
from report.outcomes import BASES, DECIDED, Verdict, count_bases
from report.pages import verdict_words
from report.pages.chart_rows import alt_text, estimate_row
from report.pages.charts import Chart, estimate_chart
from report.pages.estimate_list import format_range
from report.pages.exhibit_types import records
from report.pages.families.checks import results_measured_again
from report.pages.families.published import replaced_chart
from report.pages.families.runtimes import known_gains, ladder_chart, single_requests, sure_gains
from report.pages.families.training import ladders, largest_tuning_gain
from report.pages.figure_data import Evidence
from report.pages.front_statements import Fact, Statements, read_front
from report.pages.heading_numbers import as_number
from report.pages.markdown import Markdown, identifier
from report.pages.pictures.verdict_squares import square_entries
from report.verdict_sentences import count_rule_changes

# Maximum number of findings to show, which is the number of cards that fit in a row on a desktop screen.
FINDINGS = 3
# Page to link a finding to if its figure belongs to no claim, by figure name.
_PAGES = {"tuned": "measurements/training", "ladder": "measurements/runtimes"}
# Bytes that a language model reads for each token: 7 billion parameters in 4 bits.
_WEIGHTS = 7e9 / 2


def collect_facts(evidence: Evidence) -> dict[str, Fact]:
    """Return the facts that sentences on the front page need besides verdicts, by name.

    Facts without evidence are left out.
    """
    document = evidence.document
    facts: dict[str, Fact] = {}
    for training, name in ((True, "replaced training"), (False, "replaced inference")):
        best = [row["most"]["estimate"] for row in document.get("replaced") or [] if row["training"] is training]
        if best:
            facts[name] = Fact(format_range(best, two_digits), "published", "measurements/published")
    gain = largest_tuning_gain(evidence)
    if gain:
        cores = (gain["view"].record["hardware"].get("cpu") or {}).get("usable_cores")
        facts["tuned gain"] = Fact(
            sentence_number(gain["gain"].value, "1", "number"), "measured", "measurements/training"
        )
        facts["tuned model"] = Fact(f"one network ({gain['model']})")
        facts["tuned cores"] = Fact(format_count(int(cores), "core") if cores else "cores")
    facts.update(_generation_facts(evidence))
    facts.update(_runtime_facts(evidence))
    facts.update(_training_facts(evidence))
    sources = document.get("published") or []
    facts["machines"] = Fact(formatting.machine_names(document["nodes"]) or "no machine")
    facts["sources"] = Fact(f"{len(sources):,}")
    facts["level"] = Fact(verdict_words.LEVEL)
    facts["records"] = Fact(f"{sum(source['records'] for source in sources):,}", "", "sources")
    varied = [
        str(verdict["robust"]) for verdict in document["verdicts"] if verdict.get("robust") not in (None, "not varied")
    ]
    facts["robust"] = Fact(str(sum(robustness != "sensitive" for robustness in varied)))
    facts["sensitive"] = Fact(str(varied.count("sensitive")))
    # Older editions do not tell whether data had been seen.
    if all("data_seen" in change for verdict in document["verdicts"] for change in verdict["changes"]):
        counts = count_rule_changes(document["verdicts"])
        facts.update({f"rules {name}": Fact(str(count)) for name, count in counts.items()})
    if again := results_measured_again(evidence):
        facts["again"] = Fact(str(len(again)), "", "measurements/checks")
        facts["again agree"] = Fact(str(sum(row["agrees"] for row in again)))
    return facts


def _generation_facts(evidence: Evidence) -> Iterator[tuple[str, Fact]]:
    """Yield how fast a model with 7 billion parameters writes: derived for desktops, published for a gaming GPU."""
    if evidence.data is None or evidence.data.published is None:
        return
    table = evidence.data.published.records
    memory = table[
        (table["task"] == "triad") & (table["device"] == "cpu") & (table["unit"] == "B/s")
        & (table["source"] == "anybench-stream")
    ]  # fmt: skip
    if len(memory):
        best = memory.groupby("cpu", observed=True)["value"].max() / _WEIGHTS
        for name, value in (("least", best.min()), ("most", best.max())):
            yield f"writing {name}", Fact(two_digits(float(value)), "derived", "claims/W06")
    cards = table[
        (table["task"] == "generate") & (table["measure"] == "rate") & table["model"].str.contains("7B", na=False)
        & table["gpu"].str.contains("GeForce", na=False)
    ]  # fmt: skip
    if len(cards):
        top = cards.sort_values("value").iloc[-1]
        yield "writing gpu", Fact(two_digits(float(top["value"])), "published", "claims/W06")
        yield "writing gpu name", Fact(str(top["gpu"]).removeprefix("NVIDIA GeForce "))


def _runtime_facts(evidence: Evidence) -> Iterator[tuple[str, Fact]]:
    """Yield what known networks gain from the fastest runtime and number format, on one machine's CPU."""
    known = known_gains(evidence)
    if known is None:
        return
    view, cases = known
    sure = sure_gains(cases)
    models = [str(gain["model"]) for gain in sure]
    equal = single_requests(records(view.quantity("inference.runtime_gain", device="cpu", model=models)))
    for name, gains in (("gain", sure), ("equal", equal)):
        if all(as_number(gain).is_narrow for gain in gains):
            text = format_range([float(gain["estimate"]) for gain in gains], two_digits)
            yield f"ladder {name}", Fact(text, "measured", _PAGES["ladder"])
    yield "ladder sure", Fact(str(len(sure)))
    yield "ladder networks", Fact(format_count(len(cases), "network"))


# Small published trainings whose hours the front page tells, each with its fact's name.
_SMALL_RUNS = {"nanoGPT on Shakespeare": "hours nanogpt", "ResNet-18 on CIFAR-10": "hours resnet18"}


def _training_facts(evidence: Evidence) -> Iterator[tuple[str, Fact]]:
    """Yield the hours that small published trainings take on the first machine's CPU, as ranges, and its cores."""
    for view in evidence.views:
        runs = records(view.quantity("ladder.hours_to_train", device="cpu", run=list(_SMALL_RUNS)))
        known = [run for run in runs if np.isfinite([run["low"], run["high"]]).all()]
        if len(known) == len(_SMALL_RUNS):
            for run in known:
                ends = [sentence_number(float(run[end]), "h") for end in ("low", "high")]
                yield _SMALL_RUNS[run["run"]], Fact(" to ".join(ends), "derived", "measurements/time-to-train")
            cores = (view.record["hardware"].get("cpu") or {}).get("usable_cores")
            yield "hours cores", Fact(format_count(int(cores), "core") if cores else "a CPU")
            return


def front_charts(evidence: Evidence) -> list[Chart]:
    """Return charts drawn only for the front page."""
    drawings = []
    if evidence.document.get("replaced"):
        drawings.append(replaced_chart(evidence.document, "front-replaced"))
    gain = largest_tuning_gain(evidence)
    if gain:
        rungs = ladders(gain["view"])[gain["model"], gain["batch"]]
        rows = [
            estimate_row(name, rung, "1/s", text=f"{two_digits(rung['estimate'])}/s") for name, rung in rungs.items()
        ]
        alt = alt_text(rows)
        drawings.append(
            Chart("front-tuned", f"Training steps of {gain['model']}",
                  estimate_chart(rows, "samples a second", log=False),
                  f"● measured on {gain['view'].name}.", alt)
        )  # fmt: skip
    known = known_gains(evidence)
    ladder = known and ladder_chart(known[0], "cpu", "front-ladder", "Runtimes and number formats", short=True)
    return [*drawings, ladder] if ladder else drawings


def front_context(
    document: Mapping[str, Any],
    says: Statements,
    declared: Mapping[str, Any],
    drawn: Sequence[Chart],
    jobs: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Build the template context for the front page.

    says: statements to fill from the evidence.
    declared: content of front.yaml.
    drawn: charts from claims and from `front_charts`.
    jobs: rows from `report.pages.advice_page.example_rows`.
    """
    verdicts = document["verdicts"]
    by_name = {chart.name: chart for chart in drawn}
    findings = []
    for finding in declared["findings"]:
        text = says.first_that_holds(finding["says"])
        figure = finding.get("figure")
        chart = by_name.get(f"front-{figure}" if figure else finding["claim"])
        if text and chart:
            page = Markdown(_PAGES[figure] if figure else f"claims/{finding['claim']}")
            findings.append({"title": finding["title"], "says": text, "chart": chart, "page": page})
    counts = count_bases(verdicts)
    return {
        "answer": says.texts(declared["answer"]),
        "chart": by_name.get("front-replaced"),
        "bases": [
            {"name": identifier(name), "words": BASES[name], "count": counts[name]}
            for name in BASES
            if counts[name] and name != "not testable"
        ],
        "total": len(verdicts),
        "tally": verdict_words.format_tally(verdicts),
        "wrong": _most_wrong_article(verdicts),
        "articles": [
            {
                **_article_summary(article, says, verdicts),
                "squares": square_entries(verdict for verdict in verdicts if verdict["article"] == article["key"]),
            }
            for article in declared["articles"]
        ],
        "findings": findings[:FINDINGS],
        "jobs": jobs,
        "predicted": verdict_words.PREDICTED,
        "sure": says.texts(declared["sure"]),
        "limits": says.texts(declared["limits"]),
    }


def _most_wrong_article(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the article that most often fails to hold, by its decided claims; None if no claim fails."""
    counts = []
    for key in dict.fromkeys(verdict["article"] for verdict in verdicts):
        own = [verdict for verdict in verdicts if verdict["article"] == key]
        decided = [verdict for verdict in own if verdict["verdict"] in DECIDED]
        challenged = sum(verdict["verdict"] == Verdict.CHALLENGED for verdict in decided)
        if challenged:
            title = str(own[0]["article_title"])
            counts.append(
                {"key": identifier(str(key)), "title": title, "challenged": challenged, "decided": len(decided)}
            )
    return max(counts, key=lambda count: count["challenged"] / count["decided"], default=None)


def _article_summary(
    article: Mapping[str, Any], says: Statements, verdicts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the template context for an article, with sentences and the verdict tally.

    best: the first claim in the declared list `best` that is supported. worst: a challenged claim, if possible from the
    declared list `worst`, else the first claim in that list that depends. Either is None if there is no such claim.
    """
    own_verdicts = [verdict for verdict in verdicts if verdict["article"] == article["key"]]
    best = next((name for name in article["best"] if _has_verdict(says, name, "supported")), None)
    declared, names = article["worst"], [str(verdict["id"]) for verdict in own_verdicts]
    worst = next((name for name in (*declared, *names) if _has_verdict(says, name, "challenged")), None)
    worst = worst or next((name for name in declared if _has_verdict(says, name, "depends")), None)
    return {
        "key": identifier(str(article["key"])),
        "title": str(own_verdicts[0]["article_title"]) if own_verdicts else str(article["key"]),
        "says": says.texts(article["says"]),
        "best": identifier(best) if best else None,
        "worst": identifier(worst) if worst else None,
    }


def _has_verdict(says: Statements, name: str, wanted: str) -> bool:
    return name in says.verdicts and says.verdicts[name]["verdict"] == wanted


def summarize_verdicts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the front page's answer as plain text, the verdict tally, and a line with machines and date."""
    says = Statements(document, collect_facts(Evidence(document, None)), marks=False)
    machines = formatting.machine_names(document["nodes"])
    evidence = f"Evidence of {machines}" if machines else ""
    return {
        "answer": " ".join(says.texts(read_front()["answer"])),
        "tally": {name: int(number) for name, number in document["tally"].items() if number},
        "foot": ", ".join(filter(None, (evidence, str(document["generated_utc"])[:10]))),
    }
