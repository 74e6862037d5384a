"""Build the sources for two PDFs: a report of about twenty pages, and an appendix with all claims and measurements."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from report.pages import verdict_words
from report.pages.case_evidence import citation
from report.pages.markdown import Markdown, escape
from report.pages.site_sources import TITLE, Page, imprint

if TYPE_CHECKING:
    import jinja2

    from report.pages.site_content import Content

# Questions with a sheet each: the heading, the page with the answer, and how the figure's name begins. Of several
# figures, the one with the most rows is shown.
_QUESTIONS = (
    ("What does one GPU replace?", "measurements/published", "published-training"),
    ("Time or money?", "pictures/hours-dollars", ""),
    ("How fast does a chat model write?", "pictures/tokens-bandwidth", ""),
    ("Will it fit?", "pictures/memory-fit", ""),
    ("When are a few cores enough?", "measurements/inference", "inference-wait"),
    ("What does tuning gain?", "measurements/runtimes", ""),
    ("How long does a training take?", "pictures/time-ladder", ""),
)
# Most rows of a table and most claims on a question's sheet, most prices, and words in the glossary.
_ROWS, _CLAIMS, _PRICES, _WORDS = 16, 6, 22, 30
# Most results of a claim, and most rows of a measurement's table, in the appendix.
_RESULTS, _APPENDIX_ROWS = 6, 30

# Empty template contexts to use for failed pages, by page.
_NOTHING: dict[str, dict[str, Any]] = {
    "index": {"f": {"answer": (), "chart": None, "jobs": (), "sure": (), "articles": (), "findings": (), "wrong": None,
                    "tally": "", "total": 0}},
    "claims": {"rows": ()},
    "machines": {"kinds": (), "choice": "", "wanted": (), "preset": {"cpu": "", "gpu": ""}},
    "objections": {"objections": (), "limits": ()}, "glossary": {"terms": ()}, "runs/index": {"prices": ()},
    "pictures/verdict-squares": {"exhibit": None}, "sources": {"runs": (), "documents": (), "others": ()},
}  # fmt: skip


def report_source(content: Content, document: Mapping[str, Any], environment: jinja2.Environment) -> str:
    """Return pandoc source for the report, without failed pages."""
    contents = _shared_contents(content)
    tiers = {str(verdict["id"]): verdict_words.tier(str(verdict["evidence_tier"])) for verdict in document["verdicts"]}
    method = next((page for page in content.pages if page.template == "method"), None)
    context = {
        **contents["index"],
        "root": Markdown(""),
        "prices": _usual_prices(contents["runs/index"]["prices"]),
        "squares": contents["pictures/verdict-squares"]["exhibit"],
        "articles": [
            {**page.context["a"], "title": page.title} for page in content.pages if page.template == "article"
        ],
        "questions": list(_question_contexts(content)),
        "rows": [
            {**row, "sign": tier.sign if (tier := tiers[row["id"]]) else verdict_words.NOTHING}
            for row in contents["claims"]["rows"]
        ],
        "level": verdict_words.LEVEL,
        "linked": bool(content.url),
        "method": Markdown(_page_body(method, environment) if method else ""),
        **contents["objections"],
        "nodes": [node for kind in contents["machines"]["kinds"] for node in kind["nodes"]],
        "choice": contents["machines"]["choice"],
        "wanted": contents["machines"]["wanted"],
        "preset": contents["machines"]["preset"],
        "cite": citation(document, "and the number's id"),
    }
    description = "Three articles, their claims, and what experiments say."
    text = _document_source("report", TITLE, description, context, document, environment, content.url)
    words = _used_terms(contents["glossary"]["terms"], text)
    return text + environment.get_template("report-words.qmd").render({"terms": words})


def _question_contexts(content: Content) -> Iterator[dict[str, Any]]:
    """Yield each question with its figure, sentences, claims and a table of a few rows."""
    pages = {page.path: page for page in content.pages if page.template in ("family", "picture")}
    rows = {row["id"]: row for row in _shared_contents(content)["claims"]["rows"]}
    for asks, path, name in _QUESTIONS:
        if path not in pages:
            continue
        context = pages[path].context
        exhibits = [_as_mapping(shown) for shown in context.get("exhibits") or [context["exhibit"]]]
        named = [exhibit for exhibit in exhibits if exhibit["chart"].name.startswith(name)]
        if not named:
            continue
        exhibit = max(named, key=lambda exhibit: len(exhibit["table"].rows if exhibit["table"] else ()))
        yield {
            **exhibit,
            "asks": asks,
            "path": Markdown(path),
            "claims": [rows[name] for name in _claim_ids(exhibit["claims"]) if name in rows][:_CLAIMS],
            "most": _ROWS,
        }


def _as_mapping(exhibit: Any) -> dict[str, Any]:
    return dict(exhibit) if isinstance(exhibit, Mapping) else vars(exhibit)


def _claim_ids(claims: Sequence[Any]) -> list[str]:
    """Return ids of claims, which a family's page groups by heading."""
    if claims and not isinstance(claims[0], str):
        return [str(claim["id"]) for _, group in claims for claim in group]
    return [str(name) for name in claims]


def _usual_prices(prices: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return GPUs for rent and the newest of the others, from the least memory to the most."""

    def rank(row: Mapping[str, Any]) -> tuple[bool, str]:
        return row["rent"] != verdict_words.NOTHING, str(row["year"])

    usual = sorted(prices, key=rank, reverse=True)[:_PRICES]
    return [row for row in prices if row in usual]


def _used_terms(terms: Sequence[Mapping[str, Any]], text: str) -> list[Mapping[str, Any]]:
    """Return the glossary's terms that the text uses most, in alphabetical order."""
    counts = {
        str(term["term"]): len(re.findall(rf"\b{re.escape(str(term['term']))}s?\b", text, re.IGNORECASE))
        for term in terms
    }
    used = sorted(terms, key=lambda term: -counts[str(term["term"])])[:_WORDS]
    return [term for term in terms if term in used and counts[str(term["term"])]]


def appendix_source(content: Content, document: Mapping[str, Any], environment: jinja2.Environment) -> str:
    """Return pandoc source for the appendix with every claim, measurement and source, without failed pages."""
    contents = _shared_contents(content)
    context = {
        "claims": [
            {**claim, "most": max(2, _RESULTS // max(1, len(claim["tables"])))} for claim in _claim_contexts(content)
        ],
        "families": [
            {"title": page.title, "path": Markdown(page.path), "exhibits": page.context["exhibits"]}
            for page in content.pages
            if page.template == "family"
        ],
        "level": verdict_words.LEVEL,
        "most_rows": _APPENDIX_ROWS,
        "choice": contents["machines"]["choice"],
        "runs": contents["sources"]["runs"],
        "documents": [*contents["sources"]["documents"], *contents["sources"]["others"]],
    }
    title = f"{TITLE} Appendix"
    return _document_source(
        "appendix", title, "Every claim, measurement and source.", context, document, environment, content.url
    )


SOURCES = {"report": report_source, "appendix": appendix_source}


def failed_source(reason: str) -> str:
    """Return pandoc source for a PDF that only states why the document could not be made."""
    front = {"title": TITLE, "description": "", "imprint": ""}
    lines = [f"{key}: {json.dumps(value)}" for key, value in front.items()]
    return "\n".join(["---", *lines, "---", "", f"This document could not be made. {escape(reason)}", ""])


def _shared_contents(content: Content) -> dict[str, Mapping[str, Any]]:
    """Map the pages whose content the PDFs use to their template contexts; a failed page has an empty context."""
    pages = {page.path: page.context for page in content.pages if page.template != "failed"}
    return {name: pages.get(name, nothing) for name, nothing in _NOTHING.items()}


def _claim_contexts(content: Content) -> list[Mapping[str, Any]]:
    return [page.context["c"] for page in content.pages if page.template == "claim"]


def _page_body(page: Page, environment: jinja2.Environment) -> str:
    """Render a page up to its first folded section."""
    text = environment.get_template(f"{page.template}.qmd").render({"root": Markdown(""), **page.context})
    return text.partition("\n::: {.fold")[0]


def _document_source(
    name: str, title: str, description: str, context: Mapping[str, Any], document: Mapping[str, Any],
    environment: jinja2.Environment, url: str,
) -> str:  # fmt: skip
    front: dict[str, Any] = {
        "title": escape(title),
        "sheets": name == "report",
        "description": escape(description),
        "imprint": escape(imprint(document)),
        **({"address": f"<{url}>"} if url else {}),
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items()]
    return "\n".join(["---", *lines, "---", "", environment.get_template(f"{name}.qmd").render(context)])
