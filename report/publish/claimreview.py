"""Export verdicts as schema.org ClaimReview in JSON-LD, for search engines and fact-checkers.

Vocabulary: https://schema.org/ClaimReview; rating guidelines:
https://developers.google.com/search/docs/appearance/structured-data/factcheck
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from report.formatting import capitalize
from report.publish.study_metadata import read_study

# Only decided verdicts have a rating. For an undecided, open or untestable claim, any number would mean partly true.
RATINGS = {"supported": 5, "depends": 3, "outdated": 2, "challenged": 1}
# Author, publisher and date for the articles that state them.
_ARTICLES: Mapping[str, Mapping[str, Any]] = {
    "nuface": {
        "author": {"@type": "Person", "name": "Rico"},
        "publisher": {"@type": "Organization", "name": "Nuface Blog"},
        "datePublished": "2026-01-08",
    }
}
# Google's guide asks for fewer than 75 characters.
_CLAIM_WIDTH = 74
# Only full dates are exported, as schema.org requires; some sources give only a month or a year.
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Characters that could end the script element, or that JavaScript takes as a line end.
_ESCAPED = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def claim_reviews(
    document: Mapping[str, Any],
    site: str = "",
    meaning: Mapping[str, str] | None = None,
    addresses: Mapping[str, str] | None = None,
) -> Any:
    """Return all verdicts as a JSON-LD document that validates against report/schemas/claimreview.schema.json.

    document: the verdicts that `report judge` wrote.
    site: the site's address; without it, reviews have no URL, because a URL must be absolute.
    meaning: an explanation for each verdict.
    addresses: web addresses of articles, by the article's key.
    Raises StudyError if the study's name cannot be read.
    """
    by = {"@type": "Organization", "name": read_study().authors, **({"url": site} if site else {})}
    return {
        "@context": "https://schema.org",
        "@graph": [
            _claim_review(verdict, document, by, site, meaning or {}, addresses or {})
            for verdict in document["verdicts"]
        ],
    }


def script_element(document: Any) -> str:
    """Format JSON-LD as an HTML script element; text in the document cannot end the element early."""
    return f'<script type="application/ld+json">{script_json(document, separators=(",", ":"))}</script>\n'


def script_json(document: Any, separators: tuple[str, str] | None = None) -> str:
    """Format JSON for a script element; escape characters that could end it."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=separators).translate(_ESCAPED)


def _claim_review(
    verdict: Mapping[str, Any],
    document: Mapping[str, Any],
    by: Mapping[str, Any],
    site: str,
    meaning: Mapping[str, str],
    addresses: Mapping[str, str],
) -> dict[str, Any]:
    article = {"@type": "CreativeWork", "name": verdict["article_title"], **_ARTICLES.get(verdict["article"], {})}
    if verdict["article"] in addresses:
        article["url"] = addresses[verdict["article"]]
    review = {
        "@type": "ClaimReview",
        "identifier": verdict["id"],
        **({"url": f"{site}claims/{verdict['id']}.html"} if site else {}),
        "author": by,
        "datePublished": str(document["generated_utc"])[:10],
        "claimReviewed": textwrap.shorten(verdict["says"], _CLAIM_WIDTH, break_on_hyphens=False, placeholder=" …"),
        "itemReviewed": {
            "@type": "Claim",
            "identifier": verdict["id"],
            "text": verdict["says"],
            "appearance": article,
        },
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
