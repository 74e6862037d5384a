"""Server with `Echo` added to its services."""

from __future__ import annotations

from typing import Any

from experiments import children
from experiments.serving import server


def read_order() -> Any:
    """Add `Echo` to the services, and return what `children.read_order` returns.

    Call `children.read_order` before the imports: it may pin the process to CPUs, and library threads inherit the CPUs.
    """
    orders = children.read_order()
    from experiments.serving.services import SERVICES
    from tests.experiments.echoing.service import Echo

    SERVICES["echo"] = Echo
    return orders


if __name__ == "__main__":
    server.read_order = read_order
    server.main()
