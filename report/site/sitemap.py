"""The address of a site, and what tells search engines of its pages: robots.txt and sitemap.xml.

Source of the formats: https://www.sitemaps.org/protocol.html, RFC 9309.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit, urlunsplit
from xml.etree import ElementTree

from contract.errors import StudyError
from report.site import paths

_SPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


def address(url: str) -> str:
    """The folder's address, with the slash at its end; '' for none. Raises StudyError if it is not one of the web's."""
    if not url:
        return ""
    say = f"url {url!r}: write the address of the folder that the report lies in, such as https://example.org/study/"
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or parts.query or parts.fragment or any(sign.isspace() or not sign.isprintable() for sign in url):
        raise StudyError(say)
    if parts.path.lower().endswith((".html", ".htm")):
        raise StudyError(f"{say}, not of its page")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/", "", ""))


def sitemap(url: str, day: str, names: Sequence[str]) -> str:
    """sitemap.xml: the pages and documents at `url` (as `address` gives it), last changed on `day` (2026-01-31)."""
    root = ElementTree.Element("urlset", xmlns=_SPACE)
    for name in names:
        entry = ElementTree.SubElement(root, "url")
        # A page is known by its folder: one address for one page.
        ElementTree.SubElement(entry, "loc").text = url + ("" if name == paths.PAGE else name)
        ElementTree.SubElement(entry, "lastmod").text = day
    return document(root)


def robots(url: str) -> str:
    """robots.txt: everybody may read everything; where the sitemap is, if the site has an address."""
    return "User-agent: *\nAllow: /\n" + (f"\nSitemap: {url}{paths.SITEMAP}\n" if url else "")


def document(root: ElementTree.Element) -> str:
    """An XML document as text, indented."""
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True).decode("UTF-8") + "\n"
