"""Documents against their schemas."""

from __future__ import annotations

import pytest

from contract.errors import StudyError
from contract.schema import check


@pytest.mark.parametrize(("pattern", "value"), [("^a$", "a"), (r"^a\$", "a$\n"), ("a", "a\n")])
def test_a_pattern_takes_what_it_describes(pattern: str, value: str) -> None:
    check({"name": value}, {"properties": {"name": {"pattern": pattern}}}, "a.yaml")


@pytest.mark.parametrize(
    ("schema", "document"),
    [({"properties": {"a": {"pattern": "^b$"}}}, {"a": "b\n"}), ({"propertyNames": {"pattern": "^a$"}}, {"a\n": ""})],
)
def test_the_end_of_a_pattern_is_the_end_of_the_text(schema: dict[str, object], document: dict[str, str]) -> None:
    """Python's `$` is also before a last line break."""
    with pytest.raises(StudyError, match=r"^a\.yaml: .*does not match"):
        check(document, schema, "a.yaml")
