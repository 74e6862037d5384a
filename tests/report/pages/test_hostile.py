"""Hostile text in a node's record and samples stays inert text on pages and in PDFs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pypdfium2 as pdfium
import pytest
from bs4 import BeautifulSoup

from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.judge import judge
from report.pages.markdown import clean
from report.pages.render import render
from tests.report.conftest import CPU, GPU, Factory, SyntheticNode
from tests.report.pages.conftest import Visit

TEXTS = {
    "script": "<script>document.title='ran'</script><img src=x onerror=\"document.title='ran'\"><svg onload=alert(1)>",
    "closing": "</title></style></script></textarea>--><!-- ]]>",
    "citation": "mail @word and @fig-none [@x]",
    "mathematics": r"$x$ $$y$$ $\frac$ \(z\)",
    "link": "]](http://example.org/leak) [a](javascript:alert(1)) ![p](http://example.org/p.png) <http://example.org>",
    "include": "{{< include secret.qmd >}} `r 1+1` ``` ```{python} {#id .class onclick=x}",
    "cases": "a | b |---| c || \\| d",
    "typst": '#panic("x") #include "y" = heading <label> \\ // /* */',
    "front matter": "--- title: x ... <<percent>> <% raw %>",
    "override": "abc \u202edef\u2066 ghi\u202a",
    "right to left": "שלום, 12 (ab) 34",
    "arabic": "مرحبا 5 cores",
    "unseen": "zero\u200bwidth\ufeff soft\u00adhyphen",
    "emoji": "👩\u200d🔬 and 🏳\ufe0f\u200d🌈",
    "piled": "Z" + "\u0301" * 200 + "algo",
    "lines": "one\ntwo\r\n\r\n# three\t\x00four",
    "entities": "&lt;b&gt; &#60;i&#62; &amp;amp;",
    "list": "1. first",
}
LONG = "y" * 10_000


@dataclass
class Hostile(SyntheticNode):
    """A node with hostile text in its record."""

    def record(self) -> dict[str, Any]:
        record = super().record()
        record["hardware"]["cpu"] |= {
            "model": TEXTS["script"], "vendor": TEXTS["cases"], "family": TEXTS["include"], "architecture": LONG[:200],
        }  # fmt: skip
        record["hardware"]["gpus"] = [{"name": TEXTS["right to left"]}]
        record["software"].update(
            os=TEXTS["typst"], packages={TEXTS["link"]: TEXTS["mathematics"]}, blas=[{"library": TEXTS["override"]}]
        )
        # A text in `left_out` may have at most one line and 4,000 characters.
        record["left_out"] = [*(text for name, text in TEXTS.items() if name != "lines"), LONG[:4000]]
        record["study"]["commit"] = TEXTS["closing"]
        return record


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Render a report on a hostile node and an ordinary node."""
    folder = tmp_path_factory.mktemp("hostile")
    devices = [{**CPU, "name": TEXTS["script"]}, {**GPU, "id": "cuda:0", "name": TEXTS["right to left"]}]
    node = Hostile(folder / "nodes" / "hostile", devices).clock().peak(2e11)
    for n in (256, 512, 1024):
        node.gemm(20.0, n=n)
    for model in (*(TEXTS[name] for name in ("cases", "typst", "override", "link", "unseen", "arabic")), "x" * 300):
        for batch in (1, 8, 32):
            node.point("training", {"time": 0.02, "matmul_flop_share": 0.97, "matmul_time_share": 0.8},
                       params={"model": model, "batch": batch}, flop=1e9)  # fmt: skip
    for place, text in enumerate([*TEXTS.values(), LONG]):
        node.point("bandwidth", 1.0, status="failed", reason=text, params={"op": "triad", "footprint": 2**place})
    Factory(folder / "nodes").write([node, Factory(folder / "nodes")("plain").gemm(20.0).clock()])
    (folder / "nodes" / "hostile" / "<img src=x onerror=alert(1)> @x $y$.parquet").write_text("no table")
    gather([folder / "nodes"], folder / "data", allow_synthetic=True)
    evidence = read_dataset(folder / "data", read_reference(REFERENCE))
    document = judge(evidence, folder / "verdicts.json", allow_synthetic=True)
    # Make the texts in claims hostile as well, because they also reach the pages. Keep only the claims that the nodes
    # decide, and as many others as there are texts, because all claims share a template.
    texts = [*TEXTS.values()]
    others = [verdict for verdict in document["verdicts"] if not any(case["node"] for case in verdict["cases"])]
    dropped = {verdict["id"] for verdict in others[len(texts) :]}
    document["verdicts"] = [verdict for verdict in document["verdicts"] if verdict["id"] not in dropped]
    for place, verdict in enumerate(document["verdicts"]):
        verdict["says"] = verdict["finding"] = texts[place % len(texts)]
    document["references"][0]["source"]["title"] = TEXTS["citation"] + TEXTS["typst"]
    (folder / "verdicts.json").write_text(json.dumps(document), encoding="utf-8")
    render(folder / "verdicts.json", folder / "out", "pandoc", folder / "data")
    return folder / "out"


@pytest.fixture(scope="module")
def pages(report: Path) -> dict[str, BeautifulSoup]:
    """Parsed pages by path."""
    return {
        str(path.relative_to(report)): BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for path in sorted(report.rglob("*.html"))
        if path.name != "page.html"
    }


def cleaned_text(text: str) -> str:
    return " ".join(clean(text).split())


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_is_shown_verbatim(pages: dict[str, BeautifulSoup], name: str) -> None:
    texts = {
        " ".join(tag.get_text().split()) for page in pages.values() for tag in page.find_all(["td", "li", "p", "span"])
    }
    assert cleaned_text(TEXTS[name]) in texts
    assert LONG in texts, "the long text is complete"


def test_hostile_text_creates_no_element(pages: dict[str, BeautifulSoup]) -> None:
    for name, page in pages.items():
        assert not page.find_all(["iframe", "object", "embed", "textarea", "base"]), name
        assert all(tag["src"].startswith(("figures/", "../figures/")) for tag in page.find_all("img")), name
        assert not page.select("form[action]"), name
        links = [tag.get("href", "") for tag in page.find_all("a")]
        assert not [link for link in links if re.search(r"javascript:|/leak|p\\.png", link)], name
        assert not page.select("[onclick], [onerror], [onload]"), name
        assert not page.find(id="three") and not page.find(id="id"), name
        assert len(page.find_all("title")) == 1, name


def test_hostile_text_runs_nothing_and_keeps_the_page_width(report: Path, visit: Visit) -> None:
    tab = visit(report / "index.html", 360)
    for path in sorted(report.rglob("*.html")):
        if path.name == "page.html":
            continue
        tab.goto(path.as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
        assert tab.console_lines == [], path
        assert [url for url in tab.requested_urls if not url.startswith("file:")] == [], path
        assert tab.title() != "ran", path
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360, path


ORDER = """(wanted) => {
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const text = walker.currentNode.data, parent = walker.currentNode.parentElement;
    const at = text.indexOf(wanted[0]);
    if (at < 0 || wanted.some((part) => text.indexOf(part, at) < 0)) continue;
    if (parent.closest("svg, script") || !parent.checkVisibility()) continue;
    const boxes = wanted.map((part) => {
      const range = document.createRange(), start = text.indexOf(part, at);
      range.setStart(walker.currentNode, start);
      range.setEnd(walker.currentNode, start + part.length);
      const box = range.getClientRects()[0];
      return box ? [Math.round(box.top), box.left] : null;
    });
    found.push(boxes);
  }
  return found;
}"""


@pytest.mark.parametrize(
    "parts",
    [["abc", "def", "ghi"], ["שלום", "12", "(ab)", "34"], ["مرحبا", "5 cores"]],
    ids=["override", "hebrew", "arabic"],
)
def test_hostile_text_keeps_its_neighbours_in_order(report: Path, visit: Visit, parts: list[str]) -> None:
    tab = visit(report / "machines.html")
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    places = [boxes_of_place for boxes_of_place in tab.evaluate(ORDER, parts) if all(boxes_of_place)]
    assert places
    for boxes in places:
        # Each part of the text begins to the right of the part before, or on a later line. Parts on the same line may
        # differ by 6 px in their vertical position, because fonts differ.
        assert all(b[1] > a[1] or b[0] > a[0] + 6 for a, b in pairwise(boxes)), boxes


def test_pdfs_show_hostile_text(report: Path) -> None:
    for name in ("report", "appendix"):
        document = pdfium.PdfDocument(report / f"{name}.pdf")
        text = "".join(page.get_textpage().get_text_bounded() for page in document)
        flat = re.sub(r"[’‘]", "'", re.sub(r"[\s\u200b\u00ad\ufffe]", "", text))
        for wanted in ("document.title='ran'", "mail@wordand@fig-none", "{{<includesecret.qmd>}}", "#panic("):
            assert wanted in flat, (name, wanted)


def test_figures_contain_no_script(report: Path) -> None:
    paths = list((report / "figures").glob("*.svg"))
    assert len(paths) > 10
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert "<script" not in text and "onload" not in re.sub(r">[^<]*<", "><", text)
        assert not re.search("[\u202a-\u202e\u200b\x00-\x08]", text)
