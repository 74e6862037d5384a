"""Take the screenshot for the README: `python -m docs.picture data/editions/1/index.html docs/report.png`.

The picture stores the page's digest, so that a test can tell if it is outdated.
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
    """Write a PNG with the page's first screen at 1280x800."""
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
