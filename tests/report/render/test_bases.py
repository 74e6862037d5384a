"""A claim that is told by a base is told against every base that was measured."""

from __future__ import annotations

from typing import Any

from report.render.bases import bases


def part(name: str = "", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "unit": "1",
        "scope": {"baseline": "node"},
        "outcome": "supported",
        "rejudge": {
            "settled": [0, 0, 0],
            "cells": [[12.0, 14.0, "mlp"], [10.5, 11.0, "cnn"]],
            "baselines": {"core": {"outcome": "challenged", "settled": [0, 1, 0], "cells": [[40.0, "Infinity", ""]]}},
        },
        **more,
    }


def test_the_declared_base_comes_first_and_each_other_with_its_outcome() -> None:
    declared, other = bases({"parts": [part()]})
    assert declared == {
        "part": "",
        "base": "against all cores",
        "range": "10.5 to 14.0",
        "cells": "2 cells",
        "outcome": "supported",
    }
    assert other["base"] == "against one core"
    assert other["outcome"] == "challenged"
    assert other["cells"] == "2 cells"
    assert other["range"].startswith("40")
    assert "inf" not in other["range"].lower()


def test_parts_are_named_where_there_are_several() -> None:
    assert {row["part"] for row in bases({"parts": [part("one order"), part("two orders")]})} == {
        "one order",
        "two orders",
    }


def test_what_is_not_told_by_a_base_has_no_ladder() -> None:
    assert bases({"parts": [part(rejudge={"settled": [0, 0, 0], "cells": [], "baselines": {}}), {"name": ""}]}) == []
    assert bases({"parts": []}) == []
