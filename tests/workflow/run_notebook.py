"""Run the notebook in a clean folder: python run_notebook.py FOLDER NAME=VALUE...

Each NAME is a setting in the notebook's first code cell. Prints the output of all cells; exits with 1 if one fails.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

NOTEBOOK = Path(__file__).parents[2] / "workflow/notebooks/measure-a-gpu.ipynb"


def main(folder: str, *settings: str) -> int:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code")
    for name, value in (setting.split("=", 1) for setting in settings):
        code = value if value.isdigit() else repr(value)
        cell.source, count = re.subn(
            rf"(?m)^{name} = \S+", lambda _, name=name, code=code: f"{name} = {code}", cell.source
        )
        if count != 1:
            sys.exit(f"the notebook has no setting {name}")
    try:
        NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": folder}}).execute()
        failed = False
    except CellExecutionError:
        failed = True
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        data = output.get("data", {})
        print(output.get("text") or data.get("text/html") or data.get("text/plain") or "\n".join(output["traceback"]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
