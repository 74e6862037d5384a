"""Export verdicts as schema.org ClaimReview in JSON-LD, for search engines and fact-checkers.

Vocabulary: https://schema.org/ClaimReview; rating guidelines:
https://developers.google.com/search/docs/appearance/structured-data/factcheck
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from report.formatting import capitalize
from report.publish.study_metadata import read_study

# Only decided verdicts get a number. Any number for an undecided, open or untestable claim would call it partly true.
RATINGS = {"supported": 5, "depends": 3, "outdated": 2, "challenged": 1}
# Author and date, for articles that state them.
_ARTICLES: Mapping[str, Mapping[str, Any]] = {
    "nuface": {
        "author": {"@type": "Person", "name": "Rico"},
        "publisher": {"@type": "Organization", "name": "Nuface Blog"},
        "datePublished": "2026-01-08",
    }
}
# Only full dates are exported, as schema.org requires; some sources give only a month or a year.
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Characters that could end the script element or a line.
_ESCAPED = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def claim_reviews(document: Mapping[str, Any], base: str = "", meaning: Mapping[str, str] | None = None) -> Any:
    """Return all verdicts as a JSON-LD document that validates against report/schemas/claimreview.schema.json.

    document: written by `report judge`. base: URL prefix of claim pages; empty for a review inside such a page.
    meaning: explanations by verdict. Raises StudyError if the study's name cannot be read.
    """
    by = {"@type": "Organization", "name": read_study().authors}
    return {
        "@context": "https://schema.org",
        "@graph": [_claim_review(verdict, document, by, base, meaning or {}) for verdict in document["verdicts"]],
    }


def script_element(document: Any) -> str:
    """Format JSON-LD as an HTML script element that no text can end early."""
    return f'<script type="application/ld+json">{script_json(document, separators=(",", ":"))}</script>\n'


def script_json(document: Any, separators: tuple[str, str] | None = None) -> str:
    """Format JSON for a script element; escape characters that could end it."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=separators).translate(_ESCAPED)


def _claim_review(
    verdict: Mapping[str, Any],
    document: Mapping[str, Any],
    by: Mapping[str, Any],
    base: str,
    meaning: Mapping[str, str],
) -> dict[str, Any]:
    article = {"@type": "CreativeWork", "name": verdict["article_title"], **_ARTICLES.get(verdict["article"], {})}
    review = {
        "@type": "ClaimReview",
        "identifier": verdict["id"],
        "url": f"{base}{verdict['id']}.html",
        "author": by,
        "datePublished": str(document["generated_utc"])[:10],
        "claimReviewed": verdict["says"],
        "itemReviewed": {"@type": "Claim", "identifier": verdict["id"], "appearance": article},
        "reviewRating": _rating(verdict["verdict"], meaning),
        "reviewBody": verdict["finding"],
        "version": verdict["version"],
        "inLanguage": "en",
    }
    cited = [_citation(source) for source in verdict.get("sources") or []]
    if cited:
        review["citation"] = cited
    if document["origin"] != "measured":
        review["creativeWorkStatus"] = "Synthetic data: for tests only"
    return review


def _rating(verdict: str, meaning: Mapping[str, str]) -> dict[str, Any]:
    rating: dict[str, Any] = {"@type": "Rating", "alternateName": capitalize(verdict)}
    if verdict in RATINGS:
        rating |= {
            "ratingValue": RATINGS[verdict],
            "bestRating": max(RATINGS.values()),
            "worstRating": min(RATINGS.values()),
        }
    if verdict in meaning:
        rating["ratingExplanation"] = meaning[verdict]
    return rating


def _citation(source: Mapping[str, Any]) -> dict[str, Any]:
    cited = {"@type": "CreativeWork", "name": source["title"], "url": source["url"]}
    if source.get("publisher"):
        cited["publisher"] = {"@type": "Organization", "name": source["publisher"]}
    if _DATE.fullmatch(str(source.get("date") or "")):
        cited["datePublished"] = source["date"]
    return cited
