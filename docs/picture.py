"""Take the README's picture of the report: `python -m docs.picture data/editions/1/index.html docs/report.png`.

The picture bears the digest of the page that it shows, so that a test can tell when it is of another one.
"""

from __future__ import annotations

import hashlib
import io
import sys
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

from tests.browser import launch

DIGEST = "sha256 of the page"


def main(page_path: str, picture: str) -> None:
    """Write a PNG of the page's first screen at 1280x800."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(Path(page_path).resolve().as_uri())
        shot = page.screenshot()
        browser.close()
    about = PngInfo()
    about.add_text(DIGEST, hashlib.sha256(Path(page_path).read_bytes()).hexdigest())
    Image.open(io.BytesIO(shot)).save(picture, pnginfo=about, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
