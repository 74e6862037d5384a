"""Verdicts as schema.org ClaimReview, in JSON-LD: what a search engine or another fact-checker reads.

Source of the vocabulary: https://schema.org/ClaimReview; what a rating should say:
https://developers.google.com/search/docs/appearance/structured-data/factcheck
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from report.formatting import capital
from report.publish.study_metadata import study

# Only what was decided has a place on a scale. Without a number a rating is its words alone: too close to
# call, not measured yet and not measurable are no half-truths.
RATINGS = {"supported": 5, "depends": 3, "outdated": 2, "challenged": 1}
# What the articles say of themselves; the others name neither author nor day.
_ARTICLES: Mapping[str, Mapping[str, Any]] = {
    "nuface": {
        "author": {"@type": "Person", "name": "Rico"},
        "publisher": {"@type": "Organization", "name": "Nuface Blog"},
        "datePublished": "2026-01-08",
    }
}
# The vocabulary's Date is a whole one; of the sources some are dated by month or year.
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Signs that could end the script element, or a line of it, before its text does.
_ESCAPED = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def claim_reviews(document: Mapping[str, Any], base: str = "", meaning: Mapping[str, str] | None = None) -> Any:
    """All verdicts as one JSON-LD document; validates against report/schemas/claimreview.schema.json.

    document: what `report judge` wrote. base: address of the folder of the claims' pages;
    empty for one of these pages itself. meaning: what each verdict means, in words.
    Raises StudyError if the study's name is not to be had.
    """
    by = {"@type": "Organization", "name": study().authors}
    return {
        "@context": "https://schema.org",
        "@graph": [_review(verdict, document, by, base, meaning or {}) for verdict in document["verdicts"]],
    }


def as_script(document: Any) -> str:
    """JSON-LD as an HTML script element; no text in it can end the element."""
    return f'<script type="application/ld+json">{in_script(document, separators=(",", ":"))}</script>\n'


def in_script(document: Any, separators: tuple[str, str] | None = None) -> str:
    """JSON as the content of a script element, which no text in it can end."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=separators).translate(_ESCAPED)


def _review(
    one: Mapping[str, Any],
    document: Mapping[str, Any],
    by: Mapping[str, Any],
    base: str,
    meaning: Mapping[str, str],
) -> dict[str, Any]:
    article = {"@type": "CreativeWork", "name": one["article_title"], **_ARTICLES.get(one["article"], {})}
    review = {
        "@type": "ClaimReview",
        "identifier": one["id"],
        "url": f"{base}{one['id']}.html",
        "author": by,
        "datePublished": str(document["generated_utc"])[:10],
        "claimReviewed": one["says"],
        "itemReviewed": {"@type": "Claim", "identifier": one["id"], "appearance": article},
        "reviewRating": _rating(one["verdict"], meaning),
        "reviewBody": one["finding"],
        "version": one["version"],
        "inLanguage": "en",
    }
    cited = [_cited(source) for source in one.get("sources") or []]
    if cited:
        review["citation"] = cited
    if document["origin"] != "measured":
        review["creativeWorkStatus"] = "Synthetic data: for tests only"
    return review


def _rating(verdict: str, meaning: Mapping[str, str]) -> dict[str, Any]:
    rating: dict[str, Any] = {"@type": "Rating", "alternateName": capital(verdict)}
    if verdict in RATINGS:
        rating |= {
            "ratingValue": RATINGS[verdict],
            "bestRating": max(RATINGS.values()),
            "worstRating": min(RATINGS.values()),
        }
    if verdict in meaning:
        rating["ratingExplanation"] = meaning[verdict]
    return rating


def _cited(source: Mapping[str, Any]) -> dict[str, Any]:
    cited = {"@type": "CreativeWork", "name": source["title"], "url": source["url"]}
    if source.get("publisher"):
        cited["publisher"] = {"@type": "Organization", "name": source["publisher"]}
    if _DATE.fullmatch(str(source.get("date") or "")):
        cited["datePublished"] = source["date"]
    return cited
