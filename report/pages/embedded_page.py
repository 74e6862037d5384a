"""Put a page of the report into one file, with its style and pictures, for a notebook or a message."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from contract.errors import StudyError
from contract.files import write_text

MEDIA_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
_STYLE = re.compile(r'<link rel="stylesheet" href="([^":]+)">')
_PICTURE = re.compile(r'\b(src|srcset)="([^":]+\.(?:svg|png))"')
# Other pages are not in the file, nor are scripts, which work on those pages.
_LEFT_OUT = re.compile(r'<script [^>]*\bsrc="[^":]+"[^>]*></script>|<link rel="icon"[^>]*>|(?<=<a) href="[^":#]+"')


def embed_page(page: Path, out: Path) -> None:
    """Write `page`, a page of a rendered report, to `out` as one file that needs no others.

    Links to other pages become plain text. Raises StudyError if the page or a file that it shows is missing.
    """
    folder = page.parent

    def read(name: str) -> bytes:
        try:
            return (folder / name).read_bytes()
        except OSError as refusal:
            raise StudyError(f"{folder / name}: {refusal.strerror}: render the report first (report render)") from None

    def data_address(match: re.Match[str]) -> str:
        content = base64.b64encode(read(match[2])).decode()
        return f'{match[1]}="data:{MEDIA_TYPES[Path(match[2]).suffix]};base64,{content}"'

    text = _LEFT_OUT.sub("", read(page.name).decode("utf-8"))
    text = _STYLE.sub(lambda match: f"<style>{read(match[1]).decode('utf-8')}</style>", text)
    write_text(out, _PICTURE.sub(data_address, text))
