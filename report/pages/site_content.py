"""Build all site pages and their figures from verdicts and data."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from contract.errors import StudyError
from contract.files import read_json, read_yaml
from contract.looks import LOOKS
from contract.machine_needs import machine_rows
from contract.provenance import short_commit
from report import formatting
from report.data.dataset import DataUse
from report.formatting import capitalize, machine_names
from report.outcomes import DECIDED, verdict_basis
from report.pages import front_page as front_page
from report.pages import verdict_words
from report.pages.advice_page import advice_page, example_rows
from report.pages.articles import article_context, read_articles
from report.pages.benchmarking_rules import RULES
from report.pages.bibliography import sources_page
from report.pages.charts import Chart
from report.pages.claim_page import claim_context
from report.pages.evidence_ids import INDEX, MOST_RESULTS, REFERENCE_PAGE, EvidenceIds, experiment_page
from report.pages.evidence_pages import NO_EVIDENCE, EvidenceTables, evidence_pages, read_evidence
from report.pages.exhibit_types import Exhibit, Family, explain_hollow_marks
from report.pages.failures import Failures
from report.pages.families import FAMILIES
from report.pages.figure_data import Evidence
from report.pages.fingerprint_table import nodes_by_kind
from report.pages.front_statements import Fact, Statements, read_front
from report.pages.glossary import glossary_page, read_glossary, term_anchors
from report.pages.gpu_claims import gpu_page
from report.pages.limitations import study_limits
from report.pages.machine_selection import filter_cases
from report.pages.markdown import Markdown, identifier
from report.pages.missing_points import left_out_points
from report.pages.own_machines import own_machines
from report.pages.pictures import PICTURES
from report.pages.previews import preview_path
from report.pages.runs_pages import runs_pages
from report.pages.sections import exhibits_of
from report.pages.site_sources import MISSING, Page, shorten_description
from report.publish.claimreview import claim_reviews, script_element
from report.verdict_sentences import count_rule_changes
from report.wanted_machines import default_preset, wanted_machines

# Path to the page that lists failures.
CHECKS = "measurements/checks"
REPORT = Path(__file__).resolve().parent.parent


@dataclass
class Content:
    """Site content: pages, figures, the anchor of each glossary term, failures and the site address ('' if unknown)."""

    pages: list[Page] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    terms: dict[str, str] = field(default_factory=dict)
    failures: Failures = field(default_factory=Failures)
    url: str = ""

    def add(self, path: str, title: str, make: Callable[[], Page]) -> None:
        """Append the page that `make` returns, or a placeholder if `make` fails."""
        if not self.failures.find("page", path):
            with self.failures.catch("page", path):
                self.pages.append(make())
                return
        self.pages.append(placeholder_page(path, title, self.failures))

    def fail(self, page: Page, reason: str = "") -> Page:
        """Replace a failed page by a placeholder, and return the placeholder.

        reason: reason to record, unless a failure is already recorded for the page.
        """
        if reason:
            self.failures.add("page", page.path, reason)
        instead = placeholder_page(page.path, page.title, self.failures)
        self.pages[self.pages.index(page)] = instead
        return instead


def placeholder_page(path: str, title: str, failures: Failures) -> Page:
    """Return a page that states why the page at `path` could not be made."""
    failure = failures.find("page", path)
    reason = failure.reason if failure else "no reason given"
    return Page(path, "failed", title, "This page could not be made.", {"reason": reason})


@cache
def families() -> tuple[Family, ...]:
    """Return all families in page order; a family that cannot be imported raises its error when it is shown."""
    return tuple(_loaded_family("families", name) for name in FAMILIES)


@cache
def pictures() -> tuple[Family, ...]:
    """Return all pictures in page order; a picture that cannot be imported raises its error when it is shown."""
    return tuple(_loaded_family("pictures", name) for name in PICTURES)


def _loaded_family(package: str, name: str) -> Family:
    try:
        family: Family = importlib.import_module(f"report.pages.{package}.{name}").FAMILY
    except Exception as fault:
        folder = "pictures" if package == "pictures" else "measurements"
        title = capitalize(name.replace("_", " "))
        return Family(name.replace("_", "-"), title, "", partial(_raise_fault, fault), folder)
    return family


def _raise_fault(fault: Exception, _evidence: Evidence) -> NoReturn:
    raise fault


def family_charts(evidence: Evidence, key: str, failures: Failures) -> list[Chart]:
    """Return figures for a family, for `measurements` (all families), `claims` or `front`.

    Records failures in `failures`. Raises StudyError for an unknown key.
    """
    if key == "claims":
        return [page["figure"] for page in _claim_contexts(evidence, failures).values() if page["figure"]]
    if key == "front":
        shown = _picture_exhibits(evidence, failures)
        return [*_front_charts(evidence, failures), *(exhibit.chart for exhibit in shown.values())]
    known = {family.key: family for family in families()}
    if key not in (*known, "measurements"):
        every = ", ".join(("claims", "front", "measurements", *known))
        raise StudyError(f"figures: unknown family {key!r}. Families: {every}")
    chosen = [known[key]] if key in known else known.values()
    return [exhibit.chart for family in chosen for exhibit in _family_exhibits(family, evidence, failures)[0]]


def build_content(
    evidence: Evidence,
    url: str = "",
    changes: Mapping[str, Any] | None = None,
    failures: Failures | None = None,
    advice: Path | None = None,
) -> Content:
    """Build all site content.

    url: site address, '' if unknown.
    changes: from `changes_since_last`.
    failures: failed figures, to which failed pages are added.
    advice: output of `report calibrate`, None for data/advice.json.

    Raises StudyError for unusable data.
    """
    document = evidence.document
    _ = evidence.views
    content = Content(terms=term_anchors(read_glossary()), failures=failures or Failures(), url=url)
    tables = NO_EVIDENCE
    with content.failures.catch("page", INDEX):
        tables = read_evidence(evidence)
    claims = _claim_contexts(evidence, content.failures, tables.ids)
    measured = (
        {family.key: _family_exhibits(family, evidence, content.failures) for family in families()}
        if evidence.data
        else {}
    )
    exhibits = {key: shown for key, (shown, _) in measured.items()}
    fronts = _front_charts(evidence, content.failures)
    drawn_pictures = _picture_exhibits(evidence, content.failures)
    content.charts += [page["figure"] for page in claims.values() if page["figure"]]
    content.charts += [exhibit.chart for shown in exhibits.values() for exhibit in shown]
    facts: dict[str, Fact] = {}
    with content.failures.catch("numbers", "index"):
        facts = front_page.collect_facts(evidence)
    declared, says = read_front(), Statements(document, facts)
    jobs: list[dict[str, Any]] = []
    with content.failures.catch("page", "advice"):
        jobs = example_rows(advice, document["verdicts"])
    own: dict[str, Any] | None = None
    with content.failures.catch("numbers", "index"):
        own = own_machines(evidence, changes)
    content.add(
        "index",
        "Does AI need a GPU?",
        lambda: _front_page(document, says, declared, [*content.charts, *fronts], jobs, own),
    )
    articles = read_articles()
    addresses = {str(article["key"]): str(article["address"]) for article in articles if "address" in article}
    content.add("claims", "All claims", lambda: _claims_page(document))
    for verdict in document["verdicts"]:
        path = _claim_path(verdict)
        content.add(
            path,
            f"{verdict['id']}: {verdict['says']}",
            partial(_claim_page, verdict, claims.get(path, {}), document, url, addresses),
        )
    for raw_article in articles:
        content.add(
            _article_path(raw_article), str(raw_article["title"]), partial(_article_page, raw_article, document)
        )
    content.add("advice", "Do I need one?", lambda: advice_page(advice))
    content.add("do-i-need-one", "What to use for which job", lambda: _jobs_page(document, fronts, jobs))
    with content.failures.catch("page", "runs/index"):
        content.pages += runs_pages()
    content.add("measurements/index", "Measurements", lambda: _measurements_page(evidence, exhibits))
    for family in families():
        path = family.path
        shown, used = measured.get(family.key, ([], DataUse()))
        if shown or content.failures.find("page", path):
            links = _evidence_links(used, tables)
            content.add(path, family.title, partial(_family_page, family, shown, evidence, links))
    content.add("pictures/index", "Pictures", lambda: _pictures_page(drawn_pictures))
    for picture in pictures():
        if picture.key in drawn_pictures or content.failures.find("page", picture.path):
            exhibit = drawn_pictures.get(picture.key)
            content.add(picture.path, picture.title, partial(_picture_page, picture, exhibit, document))
    content.add("machines", "Machines", lambda: _machines_page(evidence))
    content.add("gpu", "What a GPU would change", lambda: gpu_page(document))
    content.add("method", "Method", lambda: _method_page(evidence))
    content.add("sources", "Sources", lambda: sources_page(document, bool(tables.ids.pages)))
    content.add("objections", "Objections and limits", lambda: _objections_page(evidence))
    content.add("glossary", "Glossary", glossary_page)
    content.add("editions", "Editions", lambda: editions_page(document, changes))
    choice = evidence.choice if len(tables.ids.results or ()) > MOST_RESULTS else ""
    for path, title, make in evidence_pages(tables, document, choice):
        content.add(path, title, make)
    content.add(MISSING, "Page not found", lambda: _missing_page(url))
    content.charts += [*fronts, *(exhibit.chart for exhibit in drawn_pictures.values())]
    return content


def _front_page(
    document: Mapping[str, Any],
    says: Statements,
    declared: Mapping[str, Any],
    drawn: Sequence[Chart],
    jobs: Sequence[Mapping[str, Any]],
    own: Mapping[str, Any] | None,
) -> Page:
    context = front_page.front_context(document, says, declared, drawn, jobs)
    description = "Three articles say why AI needs GPUs. Each of their claims, checked by experiment."
    return Page("index", "index", "Does AI need a GPU?", description, {"f": context, "own": own},
                image="previews/index.png")  # fmt: skip


def _missing_page(url: str) -> Page:
    """Build the page that servers show for an unknown address; without the site's address, its links are relative."""
    return Page(MISSING, "404", "Page not found", "No page has this address.", base=urlsplit(url).path)


def table_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row per claim: text, verdict, finding and evidence."""
    return [
        {
            "id": identifier(str(verdict["id"])),
            "article": str(verdict["article_title"]),
            "says": str(verdict["says"]),
            "word": verdict_words.verdict_word(str(verdict["verdict"])),
            "finding": str(verdict["finding"]),
            "rests": verdict_basis(verdict),
            "evidence": _evidence_text(verdict),
            "robust": str(verdict.get("robust") or ""),
        }
        for verdict in document["verdicts"]
    ]


def _claims_page(document: Mapping[str, Any]) -> Page:
    rows = table_rows(document)
    description = f"All {len(rows)} claims of the three articles with verdict, finding and evidence."
    first_claims = {str(verdict["article"]): verdict for verdict in reversed(document["verdicts"])}
    articles = [
        {"letter": str(verdict["id"])[0], "title": str(verdict["article_title"]), "key": identifier(key)}
        for key, verdict in reversed(first_claims.items())
    ]
    return Page("claims", "claims", f"All {len(rows)} claims", description,
                {"rows": rows, "meaning": _verdict_meanings(), "articles": articles}, key="claims")  # fmt: skip


def _evidence_text(verdict: Mapping[str, Any]) -> str:
    tier = verdict_words.tier(str(verdict["evidence_tier"]))
    return f"{tier.sign} {tier.name}" if tier and verdict["verdict"] != "not testable" else verdict_words.NOTHING


def _verdict_meanings() -> list[verdict_words.Word]:
    """List a `Word` for each verdict name. The three kinds of open verdict share a name, so they are listed once."""
    words: dict[str, verdict_words.Word] = {}
    for word in verdict_words.VERDICTS.values():
        words.setdefault(word.name, word)
    return list(words.values())


def _claim_path(verdict: Mapping[str, Any]) -> str:
    return f"claims/{identifier(str(verdict['id']))}"


def _claim_contexts(
    evidence: Evidence, failures: Failures, ids: EvidenceIds | None = None
) -> dict[str, dict[str, Any]]:
    """Return the template contexts of claim pages by path; failed claims are recorded and left out."""
    shown, contexts = evidence.shown_nodes if evidence.choice else None, {}
    for verdict in evidence.document["verdicts"]:
        with failures.catch("page", _claim_path(verdict)):
            contexts[_claim_path(verdict)] = claim_context(verdict, evidence.document, evidence.names, shown, ids)
    return contexts


def _claim_page(
    verdict: Mapping[str, Any],
    context: Mapping[str, Any],
    document: Mapping[str, Any],
    url: str,
    addresses: Mapping[str, str],
) -> Page:
    meaning = {name: word.means for name, word in verdict_words.VERDICTS.items()}
    review = claim_reviews({**document, "verdicts": [verdict]}, url, meaning, addresses)
    return Page(
        _claim_path(verdict), "claim", f"{context['id']}: {context['says']}",
        shorten_description(f"{context['word'].name}: {context['finding']}"),
        # Once the figures are drawn, `render` adds the places of the slider's line to the plots.
        {"c": context, "level": verdict_words.LEVEL, "plots": "",
         "cited": [source["key"] for source in context["sources"]]},
        key="claims",
        script=script_element(review), image=f"previews/{context['id']}.png" if context["figure"] else "",
    )  # fmt: skip


def _article_path(raw: Mapping[str, Any]) -> str:
    return f"articles/{identifier(str(raw['key']))}"


def _article_page(raw: Mapping[str, Any], document: Mapping[str, Any]) -> Page:
    context = article_context(raw, document)
    return Page(_article_path(raw), "article", str(raw["title"]),
                shorten_description(str(raw["thesis"])), {"a": context}, key="claims", toc=True)  # fmt: skip


def _jobs_page(document: Mapping[str, Any], fronts: Sequence[Chart], jobs: Sequence[Mapping[str, Any]]) -> Page:
    rows = [
        {
            "job": capitalize(str(row["job"])), "processor": str(row["processor"]), "machines": str(row["machines"]),
            **{end: formatting.two_digits(row[end]["estimate"]) for end in ("least", "most")},
            **{f"{end}_gpu": str(row[end]["gpu"]) for end in ("least", "most")},
        }
        for row in document.get("replaced") or []
    ]  # fmt: skip
    advice = [
        verdict_words.claim_entry(verdict, "finding")
        for verdict in document["verdicts"]
        if verdict["id"] in _BUYING and verdict["verdict"] in DECIDED
    ]
    chart = next((front for front in fronts if front.name == "front-replaced"), None)
    return Page("do-i-need-one", "jobs-page", "What to use for which job",
                "What to use for which job: hardware, time, price, and how sure that is.",
                {"f": {"jobs": jobs, "predicted": verdict_words.PREDICTED}, "replaced": chart, "rows": rows,
                 "advice": advice},
                key="jobs")  # fmt: skip


# Claims about buying or renting hardware.
_BUYING = ("G22", "G29", "G26", "W36", "G21", "G17", "G24", "W33", "W32")


def _measurements_page(evidence: Evidence, exhibits: Mapping[str, Sequence[Exhibit]]) -> Page:
    rows = [
        {"key": family.key, "title": family.title, "asks": family.asks, "count": len(exhibits[family.key])}
        for family in families()
        if exhibits.get(family.key)
    ]
    nodes = evidence.shown_nodes if evidence.choice else ()
    lost = left_out_points(evidence.folder, nodes) if evidence.folder else []
    left_out = [{**row, "node": evidence.names.get(str(row["node"]), str(row["node"]))} for row in lost]
    return Page("measurements/index", "measurements", "Measurements",
                "What the study measured, one page for each kind, one message for each figure.",
                {"families": rows, "left_out": left_out, "choice": evidence.choice}, key="measurements")  # fmt: skip


def _family_exhibits(family: Family, evidence: Evidence, failures: Failures) -> tuple[list[Exhibit], DataUse]:
    """Return a family's exhibits, and the data that they were made from; both are empty if it fails."""
    with failures.catch("page", family.path), evidence.track_use() as used:
        return exhibits_of(family, evidence), used
    return [], DataUse()


def _evidence_links(used: DataUse, tables: EvidenceTables) -> list[dict[str, Any]]:
    """Return name and path of each page that lists the data by id; the index of all if their use was not recorded."""
    experiments = sorted({experiment for experiment, _ in used.rows} & tables.results.keys())
    links = [{"name": name, "path": Markdown(experiment_page(name))} for name in experiments]
    if used.entries and tables.reference:
        links.append({"name": "reference figures", "path": Markdown(REFERENCE_PAGE)})
    if not links and tables.ids.pages:
        links.append({"name": "all evidence", "path": Markdown(INDEX)})
    return links


def _front_charts(evidence: Evidence, failures: Failures) -> list[Chart]:
    """Return the front page's figures; empty if they fail."""
    with failures.catch("figure", "front"):
        return front_page.front_charts(evidence)
    return []


def _picture_exhibits(evidence: Evidence, failures: Failures) -> dict[str, Exhibit]:
    """Return each picture by its key; a picture without data, or that fails, is left out."""
    shown: dict[str, Exhibit] = {}
    for picture in pictures():
        with failures.catch("page", picture.path):
            if exhibit := next(iter(picture.show(evidence)), None):
                shown[picture.key] = exhibit
    return shown


def _pictures_page(shown: Mapping[str, Exhibit]) -> Page:
    rows = [
        {"path": Markdown(picture.path), "title": picture.title, "chart": shown[picture.key].chart}
        for picture in pictures()
        if picture.key in shown
    ]
    return Page("pictures/index", "pictures", "Pictures", "One message a picture, to pass on.",
                {"pictures": rows}, key="claims")  # fmt: skip


def _picture_page(picture: Family, exhibit: Exhibit | None, document: Mapping[str, Any]) -> Page:
    if exhibit is None:
        raise StudyError("the picture has no data")
    known = {str(verdict["id"]): verdict for verdict in document["verdicts"]}
    return Page(picture.path, "picture", exhibit.chart.title, shorten_description(f"{exhibit.chart.title}."),
                {"picture": picture, "exhibit": exhibit,
                 "claims": [verdict_words.claim_entry(known[name]) for name in exhibit.claims if name in known],
                 "png": Markdown(preview_path(exhibit.chart))},
                key="claims", image=preview_path(exhibit.chart))  # fmt: skip


def _family_page(
    family: Family, exhibits: Sequence[Exhibit], evidence: Evidence, links: Sequence[Mapping[str, Any]]
) -> Page:
    known = {str(verdict["id"]): verdict for verdict in evidence.document["verdicts"]}
    shown = [
        {
            "chart": explain_hollow_marks(exhibit.chart),
            "says": list(exhibit.says),
            "table": exhibit.table.without_empty_columns() if exhibit.table and exhibit.table.rows else None,
            "claims": list(_claims_by_use([known[name] for name in exhibit.claims if name in known], exhibit.nodes)),
            "section": exhibit.section,
            "within": exhibit.within,
        }
        for exhibit in exhibits
    ]
    return Page(family.path, "family", family.title, family.asks,
                {"family": family, "exhibits": shown, "choice": evidence.choice, "substitutes": evidence.substitutes,
                 "failed": (), "links": links},
                key="measurements", toc=len(shown) > 2)  # fmt: skip


def _claims_by_use(
    verdicts: Sequence[Mapping[str, Any]], nodes: Sequence[str]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the claims that results of these nodes decide, and the other claims, each after its heading.

    nodes: ids of the nodes that an exhibit shows; without nodes, it shows what others published or documented.
    """
    deciding: list[Mapping[str, Any]] = []
    for verdict in verdicts:
        measured = {node for case in verdict["cases"] for node in formatting.case_nodes(case)}
        if verdict["verdict"] in DECIDED and (measured & set(nodes) if nodes else not measured):
            deciding.append(verdict)
    for heading, part in (
        ("Claims that rest on it", deciding),
        ("See also", [v for v in verdicts if v not in deciding]),
    ):
        yield heading, [verdict_words.claim_entry(verdict) for verdict in part]


def _machines_page(evidence: Evidence) -> Page:
    document = evidence.document
    kinds = nodes_by_kind(document["nodes"], evidence.shown_nodes)
    refused = [{"file": str(entry["file"]), "reason": str(entry["reason"])} for entry in document["refused"]]
    return Page("machines", "machines", "Machines", "What was measured on, and how to add your own machine.",
                {"kinds": kinds, "refused": refused, "choice": evidence.choice,
                 "wanted": list(_wanted_rows(document)), "preset": default_preset()}, key="machines")  # fmt: skip


def _wanted_rows(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a table row for each kind of machine that would decide open claims."""
    known = {str(verdict["id"]): verdict for verdict in document["verdicts"]}
    for row in machine_rows(wanted_machines(document).needs):
        claims = [
            {**verdict_words.claim_entry(known[need.claim]), "parts": "; ".join(need.parts), "is_open": need.is_open}
            for need in sorted(row.needs, key=lambda need: not need.is_open)
        ]
        yield {
            "machine": capitalize(row.machine.text), "claims": claims, "experiments": row.experiments,
            "preset": row.preset.name, "is_further": row.is_further, "minutes": f"{row.minutes:g}",
        }  # fmt: skip


def _method_page(evidence: Evidence) -> Page:
    return Page(
        "method", "method", "Method", "How a sentence of an article becomes a verdict, and how we measure.",
        {
            "meaning": _verdict_meanings(), "tiers": [*verdict_words.TIERS.values(), verdict_words.PREDICTED],
            "level": verdict_words.LEVEL,
            "look_level": verdict_words.LOOK_LEVEL, "looks": formatting.join_words([str(number) for number in LOOKS]),
            "multiplicity": _multiplicity_numbers(evidence.document),
            "changes": count_rule_changes(evidence.document["verdicts"]),
            "twelve": [{"asks": rule.asks, "met": rule.met} for rule in RULES],
            "triangulation": list(_triangulation_rows(evidence)),
            "contradictions": list(_contradiction_rows(evidence.document)),
        },
        key="method",
    )  # fmt: skip


def _multiplicity_numbers(document: Mapping[str, Any]) -> dict[str, Any]:
    """Format the numbers of `judging.multiplicity`, and how many verdicts rest on published runs."""
    numbers = document["multiplicity"]
    counts = {name: f"{numbers[name]:,.0f}" for name in ("cases", "decided", "standing")}
    expected = numbers["expected"]
    wrong = "fewer than one is" if expected < 1 else f"{expected:.0f} are"
    return {
        **counts,
        "wrong": wrong,
        "expected": formatting.two_digits(expected),
        "others": document["decided"]["published"],
    }


def _triangulation_rows(evidence: Evidence) -> Iterator[dict[str, str]]:
    """Yield table rows that compare a published figure with our measurement of the same quantity."""
    for pair in evidence.document["triangulation"]:
        unit = str(pair["unit"])
        for figure in pair["figures"]:
            for case in filter_cases(figure["cases"], evidence.shown_nodes):
                if figure["value"] is not None:
                    yield {
                        "title": f"{pair['title']}: {figure['called']}",
                        "published": formatting.with_unit(float(figure["value"]), unit),
                        "here": f"{formatting.with_unit(case['estimate'], unit)} ({case['label']})",
                        "differs": str(pair["differs"]),
                    }


def _contradiction_rows(document: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for contradiction in document["contradictions"]:
        sides = [
            f"{side['says']} ({', '.join(str(claim['id']) for claim in side['claims'])})"
            for side in contradiction["sides"]
        ]
        outcome = {"in part": "each holds in part", "open": "still open"}.get(
            str(contradiction["outcome"]), str(contradiction["outcome"])
        )
        yield {
            "question": str(contradiction["question"]),
            "one": sides[0],
            "other": " ".join(sides[1:]),
            "outcome": outcome,
        }


def _objections_page(evidence: Evidence) -> Page:
    document = evidence.document
    known = {str(verdict["id"]): verdict for verdict in document["verdicts"]}
    gpu = any(device["kind"] != "cpu" for node in document["nodes"] for device in node.get("devices") or [])
    schema = read_json(REPORT / "schemas" / "objections.schema.json")
    rows = [
        {
            "says": str(objection["says"]),
            "done": capitalize(str(objection["done"])),
            "answer": str(objection["answer"]),
            "claims": [verdict_words.claim_entry(known[name]) for name in objection.get("claims", []) if name in known],
        }
        for objection in read_yaml(REPORT / "objections.yaml", schema)
        if objection.get("when", {}).get("gpu", gpu) == gpu
    ]
    return Page("objections", "objections", "Objections and limits",
                "Objections to the study, our answers, and its limits.",
                {"objections": rows, "limits": study_limits(document, evidence.folder)}, toc=False)  # fmt: skip


def editions_page(document: Mapping[str, Any], changes: Mapping[str, Any] | None) -> Page:
    """Build the page on changes between editions. changes: from `changes_since_last`."""
    day = str(document["generated_utc"])[:10]
    commit = short_commit(document["commit"]) or "not recorded"
    machines = machine_names(document["nodes"]) or "no machine"
    text = f"judged on {day} by version {document['study_version']} ({commit}), from {machines}"
    return Page("editions", "editions", "Editions", "What changed from edition to edition.",
                {"edition": text, "changes": changes})  # fmt: skip
