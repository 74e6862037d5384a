"""Entry point for `python -m experiments`."""

import sys
from collections.abc import Sequence

from contract.child_processes import interrupt_on_signal
from contract.encoding import use_utf8
from contract.errors import run_command


def main(argv: Sequence[str] | None) -> int:
    """Run the command line. It is imported here, so that `run_command` reports an interrupt during the import too."""
    interrupt_on_signal()
    from experiments.cli import main as cli

    return cli(argv)


use_utf8()
sys.exit(run_command(main))
