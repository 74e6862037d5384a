"""Render page sources for Quarto and pandoc from templates, with menu, bibliography and glossary."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from contract.provenance import short_commit
from report.data.machine_names import own_nodes
from report.formatting import machine_names
from report.pages import site_paths
from report.pages.markdown import Markdown, attribute, clean, environment, escape, identifier
from report.pages.verdict_words import Word

TEMPLATES = Path(__file__).resolve().parent / "templates"
TITLE = "Does AI need a GPU?"
MISSING = site_paths.MISSING.removesuffix(".html")
# Menu entries: key, page, text.
MENU = (
    ("jobs", "advice", "Do I need one?"),
    ("claims", "claims", "Claims"),
    ("measurements", "measurements/index", "Measurements"),
    ("machines", "machines", "Machines"),
    ("method", "method", "Method"),
)
FOOTER = (
    ("pictures/index", "Pictures"),
    ("gpu", "What a GPU would change"),
    ("objections", "Objections and limits"),
    ("sources", "Sources"),
    ("glossary", "Glossary"),
    ("editions", "Editions"),
)
# Templates for pages of raw tables, which need neither search nor links to the glossary.
_EVIDENCE = ("evidence", "evidence-index")


@dataclass(frozen=True)
class Page:
    """A page of the site.

    path: path without suffix.
    template: template for the body.
    context: values for the template.
    key: menu entry that the page belongs to.
    script: script element with JSON-LD.
    image: path to the preview image.
    toc: True adds a table of contents.
    files: further files that the page loads, by path.
    base: absolute path to the site root, for a page that servers show at any address.
    """

    path: str
    template: str
    title: str
    description: str
    context: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    script: str = ""
    image: str = ""
    toc: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    base: str = ""

    @property
    def root(self) -> str:
        """Path to the site root, relative unless the page has a base."""
        return self.base or "../" * self.path.count("/")


@cache
def template_environment() -> jinja2.Environment:
    """Return the template environment. All callers share the same object."""
    jinja_env = environment(TEMPLATES)
    jinja_env.filters["join"] = lambda parts, between: Markdown(between.join(escape(str(part)) for part in parts))
    jinja_env.filters |= {"badge": badge, "sign": sign}
    return jinja_env


def badge(word: Word, small: bool = True) -> Markdown:
    """Format a verdict as a coloured badge."""
    size = " .small" if small else ""
    return Markdown(f"[{escape(word.sign)} {escape(word.name)}]{{.badge{size} .v-{identifier(word.css)}}}")


def sign(word: Word) -> Markdown:
    """Format a verdict as a sign, with its name as tooltip."""
    return Markdown(f'[{escape(word.sign)}]{{.sign .v-{identifier(word.css)} title="{attribute(word.name)}"}}')


def page_source(page: Page, templates: jinja2.Environment, terms: Mapping[str, str]) -> str:
    """Render a page as .qmd. Raises jinja2.UndefinedError for a missing context value."""
    front: dict[str, Any] = {
        "title": escape(page.title),
        "pagetitle": escape(page.title),
        "description": escape(page.description),
        # These two values become HTML attributes. They are escaped here, because pandoc leaves quotation marks in
        # attributes as they are.
        "title-attribute": _raw_html(page.title),
        "description-attribute": _raw_html(page.description),
        "root": page.root,
        "path": page.path,
        "body-class": f"page-{page.template}",
    }
    if page.path == "index":
        front["front"] = True
        # Drop the title: the front page has its own heading, and Quarto would show both.
        del front["title"]
    if page.key:
        front[f"menu-{page.key}"] = True
    if page.image:
        front["image"] = page.image
    if page.path == MISSING:
        front["missing"] = True
    if page.toc:
        front["toc"] = True
    if page.template in _EVIDENCE:
        # Quarto's search would otherwise load every id with each page.
        front["search"] = False
    elif page.path != "glossary":
        front["glossary-terms"] = dict(terms)
    cited = page.context.get("cited") or []
    if cited:
        front["nocite"] = ", ".join(f"@{key}" for key in cited)
    if page.script:
        # The script is not enclosed in a raw HTML fence, because Quarto copies the value verbatim.
        front["header-includes"] = page.script
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front.items()]
    body = templates.get_template(f"{page.template}.qmd").render({"root": Markdown(page.root), **page.context})
    return "\n".join(["---", *lines, "---", "", body])


def _raw_html(text: str) -> str:
    """Wrap text as raw HTML for an attribute."""
    return f"`{html.escape(clean(text)).replace('`', '&#96;')}`{{=html}}"


def standalone_template(imprint: str) -> str:
    """Return the pandoc template for a standalone page, without menu."""
    return _render_template({"title": TITLE, "url": "", "menu": [], "footer": [], "imprint": imprint})


def page_template(url: str, imprint: str) -> str:
    """Return the pandoc template for a page, with menu and footer."""
    site = {
        "title": TITLE,
        "url": url,
        "menu": [{"key": Markdown(key), "path": Markdown(path), "text": text} for key, path, text in MENU],
        "footer": [
            *({"path": Markdown(f"{path}.html"), "text": text} for path, text in FOOTER),
            *({"path": Markdown(path), "text": text} for path, text in (
                ("report.pdf", "PDF"), ("appendix.pdf", "Appendix (PDF)"), ("verdicts.json", "Data"))),
        ],
        "imprint": imprint,
    }  # fmt: skip
    return _render_template(site)


def _render_template(site: Mapping[str, Any]) -> str:
    templates = template_environment()
    templates.filters["html"] = lambda text: Markdown(_escape_html(str(text)))
    return templates.get_template("page.html").render({"site": site})


def _escape_html(text: str) -> str:
    """Escape HTML, and "$", which starts a variable in pandoc templates."""
    return html.escape(text).replace("$", "$$")


def quarto_project(pages: Sequence[Page], url: str, imprint: str) -> str:
    """Return `_quarto.yml` as JSON (valid YAML): website with menu, sidebars and search."""
    script = (TEMPLATES / "site" / "page.js").read_text(encoding="utf-8")
    families = [page.path for page in pages if page.template == "family"]
    articles: dict[str, list[str]] = {}
    for page in pages:
        if page.template == "claim":
            articles.setdefault(str(page.context["c"]["article_title"]), []).append(f"{page.path}.qmd")
    settings: dict[str, Any] = {
        "project": {
            "type": "website",
            "output-dir": "_site",
            "render": [f"{page.path}.qmd" for page in pages],
            "resources": ["figures/**", "site/**", "previews/**", "*.pdf", "verdicts.json", "verdicts.csv", "data/**"],
        },
        "website": {
            "title": TITLE,
            "favicon": "site/icon.svg",
            **({"site-url": url.rstrip("/"), "open-graph": True, "twitter-card": True} if url else {}),
            "search": {"location": "navbar", "type": "overlay"},
            "page-navigation": True,
            # Breadcrumbs are off, because a claim's page already names its article.
            "bread-crumbs": False,
            "navbar": {
                "left": [{"href": f"{path}.qmd", "text": text} for _, path, text in MENU],
                "collapse-below": "md",
            },
            "sidebar": [
                {
                    "id": "claims",
                    "title": "Claims",
                    "collapse-level": 1,
                    "contents": [
                        "claims.qmd",
                        *({"section": title, "contents": own} for title, own in articles.items()),
                    ],
                },
                {
                    "id": "measurements",
                    "title": "Measurements",
                    "contents": ["measurements/index.qmd", *(f"{path}.qmd" for path in families)],
                },
            ],
            "page-footer": {
                "left": imprint,
                "right": [{"href": f"{path}.qmd", "text": text} for path, text in FOOTER],
            },
        },
        "lang": "en",
        "bibliography": "references.bib",
        # Without this setting, Quarto rebuilds tables that contain links and drops their classes.
        "tbl-colwidths": True,
        "filters": ["pages.lua"],
        "execute": {"enabled": False},
        "format": {
            "html": {
                "theme": {"light": ["cosmo", "site/quarto.scss"], "dark": ["darkly", "site/quarto.scss"]},
                "respect-user-color-scheme": True,
                "css": "site/study.css",
                # The script is inline, because Quarto would resolve a file path relative to each page.
                "include-after-body": {"text": f"<script>\n{script}</script>\n"},
                "html-math-method": "mathml",
                "anchor-sections": True,
            }
        },
    }  # fmt: skip
    text = json.dumps(settings, ensure_ascii=False, indent=2)
    return f"# How Quarto (1.9 or newer) renders these pages: `quarto render` in this folder.\n{text}\n"


def robots(url: str) -> str:
    """Return robots.txt, which allows everything and names the sitemap if the site address is known."""
    return "User-agent: *\nAllow: /\n" + (f"\nSitemap: {url}{site_paths.SITEMAP}\n" if url else "")


def sitemap(url: str, paths: Sequence[str], day: str) -> str:
    """Return sitemap.xml for the pages. day: date of the last change, as in 2026-01-31."""
    entries = "".join(
        f"<url><loc>{html.escape(url + path)}.html</loc><lastmod>{day}</lastmod></url>\n" for path in paths
    )
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="{space}">\n{entries}</urlset>\n'


def copy_site(folder: Path) -> None:
    """Copy styles, scripts and the Lua filter into the folder."""
    (folder / "site").mkdir(exist_ok=True)
    for path in sorted((TEMPLATES / "site").iterdir()):
        shutil.copyfile(path, folder / "site" / path.name)
    shutil.copyfile(TEMPLATES / "pages.lua", folder / "pages.lua")


def shorten_description(text: str, room: int = 200) -> str:
    """Shorten text to a one-line description."""
    line = clean(text)
    return line if len(line) <= room else line[: room - 1].rsplit(" ", 1)[0] + " …"


def imprint(document: Mapping[str, Any]) -> str:
    """Return the footer text that identifies the edition, or the user's own study by its machines."""
    own = own_nodes(document["nodes"])
    machines = machine_names([node for node in document["nodes"] if str(node["id"]) in own])
    date, version = str(document["generated_utc"])[:10], document["study_version"]
    text = f"Study of {machines}, {date}, version {version}" if own else f"Edition of {date}, version {version}"
    commit = short_commit(document["commit"])
    made_up = " Synthetic data: for tests only." if document["origin"] != "measured" else ""
    return f"{text}, commit {commit}.{made_up}" if commit else f"{text}.{made_up}"
