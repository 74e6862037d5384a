import sys

from contract.errors import run_command
from experiments.cli import main

sys.exit(run_command(main))
