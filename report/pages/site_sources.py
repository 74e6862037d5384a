"""The sources of a website: pages as Quarto reads them, made from templates, with menu, bibliography and glossary."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import jinja2

from contract.errors import StudyError
from contract.provenance import short
from report.pages.markdown import Markdown, attribute, clean, environment, escape, identifier
from report.pages.verdict_words import Word

TEMPLATES = Path(__file__).resolve().parent / "templates"
TITLE = "Does AI need a GPU?"
# What the menu shows: key, page, words.
MENU = (
    ("claims", "claims", "Claims"),
    ("jobs", "do-i-need-one", "Do I need one?"),
    ("measurements", "measurements/index", "Measurements"),
    ("machines", "machines", "Machines"),
    ("method", "method", "Method"),
)
FOOTER = (
    ("objections", "Objections and limits"),
    ("sources", "Sources"),
    ("glossary", "Glossary"),
    ("editions", "Editions"),
)


@dataclass(frozen=True)
class Page:
    """A page: its place without ending, the template of its body, and what that prints.

    key: of the menu's entry that it belongs to. script: JSON-LD for programs. image: its preview.
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

    @property
    def root(self) -> str:
        """The way from this page to the site's folder."""
        return "../" * self.path.count("/")


@cache
def templates() -> jinja2.Environment:
    """The environment of the pages' templates, each compiled once; not to be changed."""
    made = environment(TEMPLATES)
    made.filters["join"] = lambda parts, between: Markdown(between.join(escape(str(part)) for part in parts))
    made.filters |= {"badge": badge, "sign": sign}
    return made


def badge(word: Word, small: bool = True) -> Markdown:
    """A verdict's sign and name on its colour."""
    size = " .small" if small else ""
    return Markdown(f"[{escape(word.sign)} {escape(word.name)}]{{.badge{size} .v-{identifier(word.css)}}}")


def sign(word: Word) -> Markdown:
    """A verdict's sign alone, its name told on it."""
    return Markdown(f'[{escape(word.sign)}]{{.sign .v-{identifier(word.css)} title="{attribute(word.name)}"}}')


def source(page: Page, made: jinja2.Environment, terms: Mapping[str, str]) -> str:
    """A page as .qmd: its front matter and its body. Raises jinja2.UndefinedError for what a template lacks."""
    front: dict[str, Any] = {
        "title": escape(page.title),
        "pagetitle": escape(page.title),
        "description": escape(page.description),
        # pandoc leaves quotation marks as they are, which end an attribute.
        "title-attribute": _raw(page.title),
        "description-attribute": _raw(page.description),
        "root": page.root,
        "path": page.path,
        "body-class": f"page-{page.template}",
    }
    if page.path == "index":
        front["front"] = True
        # Its own heading is the title; Quarto would set both.
        del front["title"]
    if page.key:
        front[f"menu-{page.key}"] = True
    if page.image:
        front["image"] = page.image
    if page.toc:
        front["toc"] = True
    if page.path != "glossary":
        front["glossary-terms"] = dict(terms)
    cited = page.context.get("cited") or []
    if cited:
        front["nocite"] = ", ".join(f"@{key}" for key in cited)
    if page.script:
        # No fence of raw HTML: Quarto copies this as it is.
        front["header-includes"] = page.script
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in front.items()]
    body = made.get_template(f"{page.template}.qmd").render({"root": Markdown(page.root), **page.context})
    return "\n".join(["---", *lines, "---", "", body])


def _raw(text: str) -> str:
    """Text as raw HTML for an attribute, in markdown."""
    return f"`{html.escape(clean(text)).replace('`', '&#96;')}`{{=html}}"


def address(url: str) -> str:
    """A site's address with a slash at its end; '' for none. Raises StudyError unless it is http or https."""
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise StudyError(f"--url {url!r}: an address begins with https:// and names a host")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/", "", ""))


def alone_template(imprint: str) -> str:
    """pandoc's template of a page that stands alone, without menu."""
    return _template({"title": TITLE, "url": "", "menu": [], "footer": [], "imprint": imprint})


def page_template(url: str, imprint: str) -> str:
    """pandoc's template of a page, with menu and footer."""
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
    return _template(site)


def _template(site: Mapping[str, Any]) -> str:
    made = templates()
    made.filters["html"] = lambda text: Markdown(_html(str(text)))
    return made.get_template("page.html").render({"site": site})


def _html(text: str) -> str:
    """Text for pandoc's template, to which a dollar sign means a variable."""
    return html.escape(text).replace("$", "$$")


def project(pages: Sequence[Page], url: str, imprint: str) -> str:
    """`_quarto.yml` of the same site, in JSON, which is YAML: a website with menu, sidebars and search."""
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
            **({"site-url": url.rstrip("/"), "open-graph": True, "twitter-card": True} if url else {}),
            "search": {"location": "navbar", "type": "overlay"},
            "page-navigation": True,
            # A claim's page says itself which article it is of.
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
        # Else Quarto sets tables anew that hold links, and their classes are lost.
        "tbl-colwidths": True,
        "filters": ["pages.lua"],
        "execute": {"enabled": False},
        "format": {
            "html": {
                "theme": {"light": ["cosmo", "site/quarto.scss"], "dark": ["darkly", "site/quarto.scss"]},
                "respect-user-color-scheme": True,
                "css": "site/study.css",
                # Within the page: a file would be looked for beside each page.
                "include-after-body": {"text": f"<script>\n{script}</script>\n"},
                "html-math-method": "mathml",
                "anchor-sections": True,
            }
        },
    }  # fmt: skip
    told = json.dumps(settings, ensure_ascii=False, indent=2)
    return f"# How Quarto (1.9 or newer) renders these pages: `quarto render` in this folder.\n{told}\n"


def copy_site(folder: Path) -> None:
    """Styles and scripts of the pages, and the filter, into the folder."""
    (folder / "site").mkdir(exist_ok=True)
    for path in sorted((TEMPLATES / "site").iterdir()):
        shutil.copyfile(path, folder / "site" / path.name)
    shutil.copyfile(TEMPLATES / "pages.lua", folder / "pages.lua")


def plain(text: str, room: int = 200) -> str:
    """A description: one line, no longer than programs show."""
    line = clean(text)
    return line if len(line) <= room else line[: room - 1].rsplit(" ", 1)[0] + " …"


def imprint(document: Mapping[str, Any]) -> str:
    """Which edition this is, at the foot of every page."""
    told = f"Edition of {str(document['generated_utc'])[:10]}, version {document['study_version']}"
    commit = short(document["commit"])
    made_up = " Synthetic data: for tests only." if document["origin"] != "measured" else ""
    return f"{told}, commit {commit}.{made_up}" if commit else f"{told}.{made_up}"
