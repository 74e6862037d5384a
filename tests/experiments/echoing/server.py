"""The server, with `Echo` beside the other services."""

from __future__ import annotations

from typing import Any

from experiments import children
from experiments.serving import server


def read_order() -> Any:
    """The orders of the server, which holds itself to its cores before it loads a library."""
    asked = children.read_order()
    from experiments.serving.services import SERVICES
    from tests.experiments.echoing.service import Echo

    SERVICES["echo"] = Echo
    return asked


if __name__ == "__main__":
    server.read_order = read_order
    server.main()
