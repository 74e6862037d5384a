"""Command line of the report: gather, judge, render, summary, explain."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

# Data libraries are imported by the commands that need them: `summary` and `--help` answer at once.


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="python -m report", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    nodes = argparse.ArgumentParser(add_help=False)
    nodes.add_argument(
        "--nodes",
        nargs="+",
        action="extend",
        required=True,
        type=Path,
        metavar="DIR",
        help="node folders, or folders of them; of the same node in several, the first is used",
    )

    gather = commands.add_parser("gather", parents=[nodes], help="all nodes' samples and summary as tidy tables")
    gather.add_argument("--out", required=True, type=Path, metavar="DIR")

    judge = commands.add_parser("judge", parents=[nodes], help="decide every claim: JSON, and a CSV beside it")
    judge.add_argument("--out", required=True, type=Path, metavar="FILE")
    judge.add_argument("--claims", type=Path, metavar="DIR", help="claim files (default: report/claims)")
    judge.add_argument("--reference", type=Path, metavar="DIR", help="published figures (default: data/reference)")

    verdicts = argparse.ArgumentParser(add_help=False)
    verdicts.add_argument("--verdicts", required=True, type=Path, metavar="FILE", help="what judge wrote")

    render = commands.add_parser("render", parents=[verdicts], help="the report as HTML and PDF")
    render.add_argument("--out", required=True, type=Path, metavar="DIR")
    render.add_argument("--renderer", default="auto", choices=["auto", "quarto", "pandoc"])
    render.add_argument("--data", type=Path, metavar="DIR", help="what gather wrote")

    commands.add_parser("summary", parents=[verdicts], help="how many claims have which verdict")

    explain = commands.add_parser("explain", parents=[verdicts], help="one claim, from the article to its verdict")
    explain.add_argument("claim", metavar="ID")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Raises StudyError and OSError, which `contract.errors.run_command` puts into words."""
    given = parser().parse_args(argv)
    if given.command == "gather":
        from report.gather import gather

        gather(given.nodes, given.out)
    elif given.command == "judge":
        from report.judge import CLAIMS, REFERENCE, judge

        document = judge(given.nodes, given.out, given.claims or CLAIMS, given.reference or REFERENCE)
        counts = ", ".join(f"{n} {verdict}" for verdict, n in document["tally"].items() if n)
        print(f"{len(document['verdicts'])} claims: {counts}: {given.out}", file=sys.stderr)
    elif given.command == "render":
        from report.render import render

        render(given.verdicts, given.out, given.renderer, given.data)
    else:
        from report.verdicts import explain, read_verdicts, summary

        document = read_verdicts(given.verdicts)
        print(summary(document) if given.command == "summary" else explain(document, given.claim))
    return 0
