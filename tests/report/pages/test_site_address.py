"""Any form that a site's address may take leads to its folder, or to an error in a line."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contract.errors import StudyError
from report.pages.site_address import normalize_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("", ""),
        ("https://u.github.io/repo", "https://u.github.io/repo/"),
        ("https://u.github.io/repo//", "https://u.github.io/repo/"),
        ("https://u.github.io/repo/index.html", "https://u.github.io/repo/"),
        ("HTTPS://U.GitHub.io:443/Repo/", "https://u.github.io/Repo/"),
        ("https://example.org/my study/über", "https://example.org/my%20study/%C3%BCber/"),
        ("https://example.org/a%20b/100%", "https://example.org/a%20b/100%25/"),
        ("https://straße.example/", "https://xn--strae-oqa.example/"),
        ("http://[::1]:8000/a/../b/./", "http://[::1]:8000/b/"),
    ],
)
def test_address_is_normalized(url: str, address: str) -> None:
    assert normalize_address(url) == address


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("u.github.io/repo", "begins with https://"),
        ("ftp://example.org/", "begins with https://"),
        ("https:///repo", "names a host"),
        ("  ", "names a host"),
        ("https://example.org/?page=1", "has a query"),
        ("https://example.org/#top", "has a fragment"),
        ("https://me:secret@example.org/", "has a user name"),
        ("https://example.org/a/report.html", "names the page report.html"),
        ("https://[::1/", "not valid"),
        ("https://example.org:70000/", "not valid"),
        ("https://exa mple.org/", "not valid"),
        ("https://example.org/a\nb", "has a character"),
    ],
)
def test_unusable_address_is_an_error(url: str, reason: str) -> None:
    with pytest.raises(StudyError, match=reason) as refused:
        normalize_address(url)
    assert "\n" not in str(refused.value)


@given(st.text(max_size=20), st.text(max_size=20), st.sampled_from(["https://", "http://", "HTTP:", ""]))
@example("h", "\u2028", "https://")
@example("[v1.a]", "", "https://")
def test_any_text_is_refused_or_becomes_a_folder(host: str, path: str, scheme: str) -> None:
    try:
        address = normalize_address(f"{scheme}{host}/{path}")
    except StudyError as refused:
        assert "\n" not in str(refused)
        return
    assert address.isascii() and address.endswith("/") and not set(address) & set(' <>"\\?#')
    assert normalize_address(address) == address
