"""The two PDFs as documents: thirty pages for a reader, and an appendix with everything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from report.pages import words
from report.pages.markdown import Markdown, escape
from report.pages.site import TITLE, Page, imprint

if TYPE_CHECKING:
    import jinja2

    from report.pages.content import Content

# Half a page each: those that people repeat, of each article some.
_TEN = ("W04", "W33", "G09", "N12", "W25", "G15", "N03", "G29", "W29", "N10")
# Families whose first figure the report shows.
_FIGURES = ("training", "time_to_train", "inference", "serving", "matrix_products", "memory")


def documents(made: Content, document: Mapping[str, Any], environment: jinja2.Environment) -> dict[str, str]:
    """Sources of `report` and `appendix`, which pandoc turns to typst."""
    pages = {page.path: page for page in made.pages}
    front, method = pages["index"].context, pages["method"]
    claims = [page.context["c"] for page in made.pages if page.template == "claim"]
    families = [
        {"title": page.title, "exhibits": page.context["exhibits"]} for page in made.pages if page.template == "family"
    ]
    by_key = {page.context["family"].key: page for page in made.pages if page.template == "family"}
    shown = [by_key[key.replace("_", "-")].context["exhibits"] for key in _FIGURES if key.replace("_", "-") in by_key]
    known = {str(one["id"]): one for one in document["verdicts"]}
    rows = [
        {**row, "sign": tier.sign if (tier := words.tier(str(known[row["id"]]["evidence_tier"]))) else words.NOTHING}
        for row in pages["claims"].context["rows"]
    ]
    told = {
        **front,
        "root": Markdown(""),
        "figures": [exhibits[0]["chart"] for exhibits in shown if exhibits],
        "rows": rows,
        "ten": sorted((c for c in claims if c["id"] in _TEN), key=lambda c: _TEN.index(c["id"])),
        "method": Markdown(_body(method, environment)),
        **pages["objections"].context,
        "nodes": [node for kind in pages["machines"].context["kinds"] for node in kind["nodes"]],
        "choice": pages["machines"].context["choice"],
        "terms": pages["glossary"].context["terms"],
    }
    sources = pages["sources"].context
    more = {
        "claims": claims, "families": families, "runs": sources["runs"], "level": words.LEVEL,
        "choice": pages["machines"].context["choice"],
        "documents": sources["documents"],
    }  # fmt: skip
    return {
        "report": _source("report", TITLE, "Three articles, their claims, and what experiments say.", told, document,
                          environment),
        "appendix": _source("appendix", f"{TITLE} Appendix", "Every claim, measurement and source.", more, document,
                            environment),
    }  # fmt: skip


def _body(page: Page, environment: jinja2.Environment) -> str:
    """The first two screens of a page, its headings a level down, without what is folded."""
    text = environment.get_template(f"{page.template}.qmd").render({"root": Markdown(""), **page.context})
    return text.partition("\n::: {.fold")[0]


def _source(
    name: str, title: str, description: str, told: Mapping[str, Any], document: Mapping[str, Any],
    environment: jinja2.Environment,
) -> str:  # fmt: skip
    front = {"title": escape(title), "description": escape(description), "imprint": escape(imprint(document))}
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in front.items()]
    return "\n".join(["---", *lines, "---", "", environment.get_template(f"{name}.qmd").render(told)])
