"""File paths in a published report, relative to its folder.

The paths are the same in all editions, so that links to them stay valid.
"""

from __future__ import annotations

PAGE, PDF, APPENDIX, RENDERED = "index.html", "report.pdf", "appendix.pdf", "render.json"
# File that lists failed pages and figures. `report render` writes it last.
FAILURES = "failures.json"
VERDICTS, VERDICTS_TABLE = "verdicts.json", "verdicts.csv"
# Folder of the dataset.
DATASET = "data"
EDITIONS = "editions.json"
# Page for unknown addresses, and files for search engines.
MISSING, ROBOTS, SITEMAP = "404.html", "robots.txt", "sitemap.xml"
