"""Entry point for `python -m experiments`."""

import sys
from collections.abc import Sequence

from contract.child_processes import interrupt_on_signal
from contract.encoding import use_utf8
from contract.errors import run_command


def main(argv: Sequence[str] | None) -> int:
    """Run the command line.

    This function imports `experiments.cli`, so that `run_command` also reports an interrupt during that import.
    """
    interrupt_on_signal()
    from experiments.cli import main as cli

    return cli(argv)


use_utf8()
sys.exit(run_command(main))
