"""Build the sources for two PDFs: a thirty-page report, and an appendix with all claims and measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from report.pages import verdict_words
from report.pages.markdown import Markdown, escape
from report.pages.site_sources import TITLE, Page, imprint

if TYPE_CHECKING:
    import jinja2

    from report.pages.site_content import Content

# Claims that get half a page each in the report: they are widely repeated, and each article has some.
_TEN = ("W04", "W33", "G09", "N12", "W25", "G15", "N03", "G29", "W29", "N10")
# Families whose first figure is shown in the report.
_FIGURES = ("training", "time_to_train", "inference", "serving", "matrix_products", "memory")


# Empty template contexts to use for failed pages, by page.
_NOTHING: dict[str, dict[str, Any]] = {
    "index": {"f": {"answer": (), "chart": None, "jobs": (), "sure": (), "limits": (), "articles": (),
                    "bases": [], **dict.fromkeys(("total", "opinions"), 0)}},
    "claims": {"rows": ()}, "machines": {"kinds": (), "choice": ""}, "objections": {"objections": (), "limits": ()},
    "glossary": {"terms": ()}, "sources": {"runs": (), "documents": (), "others": ()},
}  # fmt: skip


def report_source(content: Content, document: Mapping[str, Any], environment: jinja2.Environment) -> str:
    """Return pandoc source for the thirty-page report, without failed pages."""
    contents = _shared_contents(content)
    by_key = {page.context["family"].key: page for page in content.pages if page.template == "family"}
    exhibit_lists = [
        by_key[key.replace("_", "-")].context["exhibits"] for key in _FIGURES if key.replace("_", "-") in by_key
    ]
    tiers = {str(verdict["id"]): verdict_words.tier(str(verdict["evidence_tier"])) for verdict in document["verdicts"]}
    method = next((page for page in content.pages if page.template == "method"), None)
    context = {
        **contents["index"],
        "root": Markdown(""),
        "figures": [exhibits[0]["chart"] for exhibits in exhibit_lists if exhibits],
        "rows": [
            {**row, "sign": tier.sign if (tier := tiers[row["id"]]) else verdict_words.NOTHING}
            for row in contents["claims"]["rows"]
        ],
        "ten": sorted((c for c in _claim_contexts(content) if c["id"] in _TEN), key=lambda c: _TEN.index(c["id"])),
        "method": Markdown(_page_body(method, environment) if method else ""),
        **contents["objections"],
        "nodes": [node for kind in contents["machines"]["kinds"] for node in kind["nodes"]],
        "choice": contents["machines"]["choice"],
        "terms": contents["glossary"]["terms"],
    }
    description = "Three articles, their claims, and what experiments say."
    return _document_source("report", TITLE, description, context, document, environment, content.url)


def appendix_source(content: Content, document: Mapping[str, Any], environment: jinja2.Environment) -> str:
    """Return pandoc source for the appendix with every claim, measurement and source, without failed pages."""
    contents = _shared_contents(content)
    context = {
        "claims": _claim_contexts(content),
        "families": [
            {"title": page.title, "exhibits": page.context["exhibits"]}
            for page in content.pages
            if page.template == "family"
        ],
        "level": verdict_words.LEVEL,
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
    front: dict[str, str] = {
        "title": escape(title),
        "description": escape(description),
        "imprint": escape(imprint(document)),
        **({"address": f"<{url}>"} if url else {}),
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items()]
    return "\n".join(["---", *lines, "---", "", environment.get_template(f"{name}.qmd").render(context)])
