"""All pages of the site and the figures that they show, made from verdicts and data."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from contract.errors import StudyError
from contract.files import read_json, read_yaml
from contract.provenance import short
from report import formatting
from report.formatting import capital, count, few
from report.model import DECIDED
from report.pages import disturbed, words
from report.pages import front as front_page
from report.pages.articles import article, read_articles
from report.pages.charts import Chart
from report.pages.claim_figure import claim_chart
from report.pages.claims import claim_context
from report.pages.evidence import Evidence
from report.pages.exhibit import Exhibit, Family
from report.pages.families import FAMILIES
from report.pages.left_out import left_out_points
from report.pages.limits import limits
from report.pages.machines import by_kind
from report.pages.markdown import Markdown, identifier
from report.pages.shown import on_shown
from report.pages.site import Page, plain
from report.pages.sources import key_of, key_of_published
from report.pages.statements import Statements, read_front
from report.pages.twelve import RULES
from report.publish.claimreview import as_script, claim_reviews

REPORT = Path(__file__).resolve().parent.parent
_REQUIRED = ("generated_utc", "commit", "study_version", "origin", "nodes", "refused", "tally", "verdicts")


@dataclass
class Content:
    """Pages, the figures that they show by family, and the glossary's anchors by term."""

    pages: list[Page] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    terms: dict[str, str] = field(default_factory=dict)


def read_verdicts(path: Path) -> dict[str, Any]:
    """The verdicts. Raises StudyError if the file is not what `report judge` writes."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise StudyError(f"{path}: not a file of verdicts: write one with `python -m report judge`")
    missing = [key for key in _REQUIRED if key not in document]
    if missing:
        raise StudyError(f"{path}: lacks {', '.join(missing)}: write it again with `python -m report judge`")
    if len({str(one["id"]) for one in document["verdicts"]}) != len(document["verdicts"]):
        raise StudyError(f"{path}: an id occurs twice: write it again with `python -m report judge`")
    return document


@cache
def families() -> tuple[Family, ...]:
    """All families of measurements, in the order of their pages."""
    return tuple(importlib.import_module(f"report.pages.families.{name}").FAMILY for name in FAMILIES)


def family_charts(evidence: Evidence, key: str) -> list[Chart]:
    """The figures of one family, of all (`measurements`), of the claims or of the front page.

    Raises StudyError for a key that is none.
    """
    if key == "claims":
        return [chart for one in evidence.document["verdicts"] if (chart := claim_chart(one, evidence.names))]
    if key == "front":
        return front_page.charts(evidence)
    known = {family.key: family for family in families()}
    if key not in (*known, "measurements"):
        every = ", ".join(("claims", "front", "measurements", *known))
        raise StudyError(f"figures: there is no family {key!r}. Families: {every}")
    shown = [known[key]] if key in known else known.values()
    return [exhibit.chart for family in shown for exhibit in family.show(evidence)]


def build(evidence: Evidence, url: str = "", changes: Mapping[str, Any] | None = None) -> Content:
    """Everything of the site. url: its address, '' if unknown. changes: since the last edition."""
    document = evidence.document
    made = Content(terms=_anchors(read_glossary()))
    claims = list(_claim_pages(evidence, url))
    exhibits = {family.key: disturbed.exhibits(family, evidence) for family in families()} if evidence.data else {}
    fronts = front_page.charts(evidence)
    made.charts += [page.context["c"]["figure"] for page in claims if page.context["c"]["figure"]]
    made.charts += [exhibit.chart for shown in exhibits.values() for exhibit in shown]
    declared, says = read_front(), Statements(document, front_page.facts(evidence))
    made.pages += [
        _front(document, says, declared, [*made.charts, *fronts]),
        _table(document),
        *claims,
        *(_article(one, document) for one in read_articles()),
        _jobs(document, says, declared, fronts),
        _measurements(evidence, exhibits),
        *(_family(family, exhibits[family.key], evidence) for family in families() if exhibits.get(family.key)),
        _machines(evidence),
        _method(evidence),
        _sources(document),
        _objections(evidence),
        _glossary(),
        editions_page(document, changes),
    ]
    made.charts += fronts
    return made


def _front(document: Mapping[str, Any], says: Statements, declared: Mapping[str, Any], drawn: Sequence[Chart]) -> Page:
    told = front_page.front(document, says, declared, drawn)
    description = "Three popular articles say why AI needs GPUs. Each of their claims, checked by experiment."
    return Page("index", "index", "Does AI need a GPU?", description,
                {"f": told}, image="previews/index.png")  # fmt: skip


def table_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each claim: in our words, its verdict, its finding, its evidence."""
    return [
        {
            "id": identifier(str(one["id"])),
            "article": str(one["article_title"]),
            "says": str(one["says"]),
            "word": words.verdict(str(one["verdict"])),
            "finding": str(one["finding"]),
            "rests": words.rests(one),
            "evidence": _evidence(one),
            "robust": str(one.get("robust") or ""),
        }
        for one in document["verdicts"]
    ]


def _table(document: Mapping[str, Any]) -> Page:
    rows = table_rows(document)
    description = f"All {len(rows)} claims of the three articles with verdict, finding and evidence."
    return Page("claims", "claims", f"All {len(rows)} claims", description,
                {"rows": rows, "meaning": _meaning()}, key="claims")  # fmt: skip


def _evidence(verdict: Mapping[str, Any]) -> str:
    tier = words.tier(str(verdict["evidence_tier"]))
    return f"{tier.sign} {tier.name}" if tier and words.rests(verdict) != "opinion" else words.NOTHING


def _meaning() -> list[words.Word]:
    """Each verdict once; the three kinds of open ones are one to readers."""
    found: dict[str, words.Word] = {}
    for word in words.VERDICTS.values():
        found.setdefault(word.name, word)
    return list(found.values())


def _claim_pages(evidence: Evidence, url: str) -> Iterator[Page]:
    document = evidence.document
    meaning = {name: word.means for name, word in words.VERDICTS.items()}
    # Without an address of the site a review's is relative to its page.
    folder = f"{url}claims/" if url else ""
    reviews = {
        str(one["id"]): as_script(claim_reviews({**document, "verdicts": [one]}, folder, meaning))
        for one in document["verdicts"]
    }
    for one in document["verdicts"]:
        told = claim_context(one, document, evidence.names, evidence.shown if evidence.choice else None)
        cited = [source["key"] for source in told["sources"]]
        yield Page(
            f"claims/{told['id']}", "claim", f"{told['id']}: {told['says']}",
            plain(f"{told['word'].name}: {told['finding']}"),
            {"c": told, "level": words.LEVEL, "cited": cited}, key="claims", script=reviews[str(one["id"])],
            image=f"previews/{told['id']}.png" if told["figure"] else "",
        )  # fmt: skip


def _article(raw: Mapping[str, Any], document: Mapping[str, Any]) -> Page:
    told = article(raw, document)
    return Page(f"articles/{identifier(str(raw['key']))}", "article", str(raw["title"]),
                plain(str(raw["thesis"])), {"a": told}, key="claims", toc=True)  # fmt: skip


def _jobs(document: Mapping[str, Any], says: Statements, declared: Mapping[str, Any], fronts: Sequence[Chart]) -> Page:
    rows = [
        {
            "job": capital(str(row["job"])), "server": str(row["server"]),
            **{end: formatting.two_digits(row[end]["estimate"]) for end in ("least", "most")},
            **{f"{end}_gpu": str(row[end]["gpu"]) for end in ("least", "most")},
        }
        for row in document.get("replaced") or []
    ]  # fmt: skip
    advice = [
        words.claim(one, "finding")
        for one in document["verdicts"]
        if one["id"] in _BUYING and one["verdict"] in DECIDED
    ]
    chart = next((one for one in fronts if one.name == "front-replaced"), None)
    return Page("do-i-need-one", "jobs-page", "Do I need a GPU?",
                "What to use for which job: hardware, time, price, and how sure that is.",
                {"f": {"jobs": front_page.jobs(declared, says)}, "replaced": chart, "rows": rows, "advice": advice},
                key="jobs")  # fmt: skip


# Claims on what to buy or rent.
_BUYING = ("G22", "G29", "G26", "W36", "G21", "G17", "G24", "W33", "W32")


def _measurements(evidence: Evidence, exhibits: Mapping[str, Sequence[Exhibit]]) -> Page:
    rows = [
        {"key": family.key, "title": family.title, "asks": family.asks, "count": len(exhibits[family.key])}
        for family in families()
        if exhibits.get(family.key)
    ]
    nodes = evidence.shown if evidence.choice else ()
    lost = left_out_points(evidence.folder, nodes) if evidence.folder else []
    left_out = [{**one, "node": evidence.names.get(str(one["node"]), str(one["node"]))} for one in lost]
    return Page("measurements/index", "measurements", "Measurements",
                "What the study measured, one page for each kind, one message for each figure.",
                {"families": rows, "left_out": left_out, "choice": evidence.choice}, key="measurements")  # fmt: skip


def _family(family: Family, exhibits: Sequence[Exhibit], evidence: Evidence) -> Page:
    known = {str(one["id"]): one for one in evidence.document["verdicts"]}
    shown = [
        {
            "chart": one.chart,
            "says": list(one.says),
            "table": one.table.filled() if one.table and one.table.rows else None,
            "claims": [words.claim(known[name]) for name in one.claims if name in known],
        }
        for one in exhibits
    ]
    return Page(f"measurements/{identifier(family.key)}", "family", family.title, family.asks,
                {"family": family, "exhibits": shown, "choice": evidence.choice}, key="measurements",
                toc=len(shown) > 2)  # fmt: skip


def _machines(evidence: Evidence) -> Page:
    document = evidence.document
    kinds = by_kind(document["nodes"], evidence.shown)
    refused = [{"file": str(one["file"]), "reason": str(one["reason"])} for one in document["refused"]]
    return Page("machines", "machines", "Machines", "What was measured on, and how to add your own machine.",
                {"kinds": kinds, "refused": refused, "choice": evidence.choice}, key="machines")  # fmt: skip


def _method(evidence: Evidence) -> Page:
    return Page(
        "method", "method", "Method", "How a sentence of an article becomes a verdict, and how it is measured.",
        {
            "meaning": _meaning(), "tiers": list(words.TIERS.values()), "level": words.LEVEL,
            "twelve": [{"asks": rule.asks, "met": rule.met} for rule in RULES],
            "triangulation": list(_triangulation(evidence)),
            "contradictions": list(_contradictions(evidence.document)),
        },
        key="method",
    )  # fmt: skip


def _triangulation(evidence: Evidence) -> Iterator[dict[str, str]]:
    """Pairs of a published and a measured figure of the same thing."""
    for pair in evidence.document["triangulation"]:
        unit = str(pair["unit"])
        for figure in pair["figures"]:
            for cell in on_shown(figure["cells"], evidence.shown):
                if figure["value"] is not None:
                    yield {
                        "title": f"{pair['title']}: {figure['called']}",
                        "published": formatting.with_unit(float(figure["value"]), unit),
                        "here": f"{formatting.with_unit(cell['estimate'], unit)} ({cell['label']})",
                        "differs": str(pair["differs"]),
                    }


def _contradictions(document: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for one in document["contradictions"]:
        told = [f"{side['says']} ({', '.join(str(claim['id']) for claim in side['claims'])})" for side in one["sides"]]
        outcome = {"in part": "each holds in part", "open": "still open"}.get(str(one["outcome"]), str(one["outcome"]))
        yield {"question": str(one["question"]), "one": told[0], "other": " ".join(told[1:]), "outcome": outcome}


def _sources(document: Mapping[str, Any]) -> Page:
    documents: dict[str, dict[str, Any]] = {}
    for one in document["references"]:
        source = one["source"]
        row = documents.setdefault(str(source["url"]), {"title": Markdown(""), "what": [], "claims": []})
        row["title"], row["plain"] = Markdown(f"[@{key_of(str(source['url']))}]"), str(source["title"])
        value = "could not be verified" if one["value"] is None else str(one["value"])
        if isinstance(one["value"], int | float):
            value = formatting.threshold_text(one["value"], str(one["unit"]))
        row["what"].append(f"{one['subject']}, {one['what']}: {value}")
        row["claims"] += [identifier(str(name)) for name in one["used_by"] if _CLAIM.fullmatch(str(name))]
    rows = [
        {**row, "what": "; ".join(row["what"]), "claims": list(dict.fromkeys(sorted(row["claims"])))}
        for row in documents.values()
    ]
    runs = [
        {
            "title": Markdown(f"[@{key_of_published(str(one['id']))}]"),
            "about": f"{one['title']}. {one['note']}",
            "records": f"{one['records']:,}",
            "claims": [identifier(str(name)) for name in one["used_by"] if _CLAIM.fullmatch(str(name))],
        }
        for one in document["published"] or []
    ]
    records = sum(one["records"] for one in document["published"] or [])
    counts = f"{records:,} records from {count(len(runs), 'source')}, each read from the place where it was published."
    # Cited in the tables: nothing is left to be named.
    return Page("sources", "sources", "Sources", "Every published figure and every run of others that claims rest on.",
                {"documents": rows, "runs": runs, "counts": counts, "cited": ["*"]})  # fmt: skip


_CLAIM = re.compile(r"[A-Z]\d\d")


def _objections(evidence: Evidence) -> Page:
    document = evidence.document
    known = {str(one["id"]): one for one in document["verdicts"]}
    gpu = any(device["kind"] != "cpu" for node in document["nodes"] for device in node.get("devices") or [])
    schema = read_json(REPORT / "schemas" / "objections.schema.json")
    rows = [
        {
            "says": str(one["says"]),
            "done": capital(str(one["done"])),
            "answer": str(one["answer"]),
            "claims": [words.claim(known[name]) for name in one.get("claims", []) if name in known],
        }
        for one in read_yaml(REPORT / "objections.yaml", schema)
        if one.get("when", {}).get("gpu", gpu) == gpu
    ]
    return Page("objections", "objections", "Objections and limits",
                "What may be held against the study, what was done about it, and what it cannot say.",
                {"objections": rows, "limits": limits(document, evidence.folder)}, toc=False)  # fmt: skip


def read_glossary() -> list[dict[str, Any]]:
    """Terms of the trade: term, also (other spellings), means. Raises StudyError for what the schema does not allow."""
    found: list[dict[str, Any]] = read_yaml(
        REPORT / "glossary.yaml", read_json(REPORT / "schemas" / "glossary.schema.json")
    )
    return found


def _anchor(term: str) -> Markdown:
    spelt = term.lower().replace("/", "-per-")
    return identifier("t-" + re.sub(r"[^a-z0-9]+", "-", spelt).strip("-"))


def _anchors(glossary: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The anchor of each spelling; abbreviations as they are written, words in small letters."""
    return {
        name if any(sign.isupper() or sign.isdigit() for sign in name) else name.lower(): str(_anchor(one["term"]))
        for one in glossary
        for name in (one["term"], *one.get("also", []))
    }


def _glossary() -> Page:
    terms = [
        {"term": str(one["term"]), "anchor": _anchor(str(one["term"])), "means": str(one["means"])}
        for one in sorted(read_glossary(), key=lambda one: str(one["term"]).lower())
    ]
    return Page(
        "glossary", "glossary", "Glossary", "Every unit and term of the trade in plain words.", {"terms": terms}
    )


def editions_page(document: Mapping[str, Any], changes: Mapping[str, Any] | None) -> Page:
    """What changed from edition to edition. changes: as `since_last` gives it."""
    day = str(document["generated_utc"])[:10]
    commit = short(document["commit"]) or "not recorded"
    machines = few([str(node.get("label") or node["id"]) for node in document["nodes"]], "machine") or "no machine"
    told = f"judged on {day} by version {document['study_version']} ({commit}), from {machines}"
    return Page("editions", "editions", "Editions", "What changed from edition to edition.",
                {"edition": told, "changes": changes})  # fmt: skip
