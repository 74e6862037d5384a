"""Check and normalize the web address at which a site will be published."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

import idna

from contract.errors import StudyError

_PORTS = {"http": 80, "https": 443}
_PATH_SAFE = "/%:@!$&'()*+,;=~"
_HINT = "give the address of the site's folder, such as https://example.org/study/"


def normalize_address(url: str) -> str:
    """Return the address of a site's folder, percent-encoded, with a slash at its end; '' if `url` is empty.

    A host with other than ASCII letters becomes Punycode, and `index.html` at the end is left out.
    Raises StudyError for any other scheme than http(s), a query, a fragment, a user name, another page or an
    invalid host.
    """
    if not url:
        return ""
    text = url.strip(" ")
    if not text.isprintable():
        raise StudyError(f"url {url!r}: has a character that no address may have: {_HINT}")
    try:
        parts = urlsplit(text)
        host = _ascii_host(parts)
    except ValueError as refused:
        raise StudyError(f"url {url!r}: its host or port is not valid ({refused}): {_HINT}") from None
    if parts.scheme not in _PORTS or not host:
        raise StudyError(f"url {url!r}: an address begins with https:// and names a host: {_HINT}")
    for sign, part in (("?", "query"), ("#", "fragment")):
        if sign in text:
            raise StudyError(f"url {url!r}: has a {part}, which pages cannot keep: leave out {sign} and all after it")
    if "@" in parts.netloc:
        raise StudyError(f"url {url!r}: has a user name, which every page would show: leave it out")
    path = re.sub(r"/index\.html$", "/", parts.path)
    if page := re.search(r"[^/]+\.html?$", path, re.IGNORECASE):
        raise StudyError(f"url {url!r}: names the page {page[0]}: {_HINT}")
    escaped = quote(re.sub("%(?![0-9A-Fa-f]{2})", "%25", path).rstrip("/") + "/", safe=_PATH_SAFE)
    # `urljoin` resolves the segments "." and "..".
    return urljoin(urlunsplit((parts.scheme, host, escaped, "", "")), ".")


def _ascii_host(parts: SplitResult) -> str:
    """Return host and port in lower case, without the scheme's own port. Raises ValueError if they are invalid."""
    name, port = parts.hostname or "", parts.port
    host = f"[{name}]" if ":" in name else idna.encode(name, uts46=True).decode() if name else ""
    return host if port in (None, _PORTS.get(parts.scheme)) else f"{host}:{port}"
