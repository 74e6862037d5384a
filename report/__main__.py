"""`python -m report`."""

import sys

from contract.errors import run_command
from report.cli import main

sys.exit(run_command(main))
