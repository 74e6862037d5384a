"""`python -m report`."""

import sys
from collections.abc import Sequence

from contract.child_processes import interrupt_on_signal
from contract.encoding import use_utf8
from contract.errors import run_command
from contract.garbage import collect_seldom


def main(argv: Sequence[str] | None) -> int:
    """Import and run the command line, so that an interrupt during the imports is reported too."""
    interrupt_on_signal()
    from report.cli import main as cli

    collect_seldom()
    return cli(argv)


use_utf8()
sys.exit(run_command(main))
