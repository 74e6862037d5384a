"""Command line of the report: from node folders to verdicts and pages, and tools to extend them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from contract.arguments import Parser, parse_count, parse_number, parse_path

# Each command imports the data libraries that it needs, so that `summary` and `--help` start fast.


def parser() -> argparse.ArgumentParser:
    """Return the parser for all commands."""
    top = Parser(prog="python -m report", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    nodes = Parser(add_help=False)
    nodes.add_argument(
        "--nodes",
        nargs="+",
        action="extend",
        required=True,
        type=parse_path,
        metavar="DIR",
        help="node folders, or folders of them; the first one is used if several hold the same node",
    )

    gather = commands.add_parser("gather", parents=[nodes], help="write all nodes' samples and summary as tidy tables")
    gather.add_argument("--out", required=True, type=parse_path, metavar="DIR")

    judge = commands.add_parser("judge", help="decide every claim: JSON, and a CSV beside it")
    judge.add_argument("--data", required=True, type=parse_path, metavar="DIR", help="what gather wrote")
    judge.add_argument("--out", required=True, type=parse_path, metavar="FILE")
    judge.add_argument("--claims", type=parse_path, metavar="DIR", help="claim files (default: report/claims)")
    judge.add_argument(
        "--reference", type=parse_path, metavar="DIR", help="published figures (default: data/reference)"
    )

    judge.add_argument(
        "--published", type=parse_path, metavar="DIR", help="published measurements (default: data/published)"
    )

    verdicts = Parser(add_help=False)
    verdicts.add_argument("--verdicts", required=True, type=parse_path, metavar="FILE", help="what judge wrote")

    previous = Parser(add_help=False)
    previous.add_argument(
        "--previous", type=parse_path, metavar="FILE", help="an earlier verdicts.json, or a site's editions.json"
    )

    render = commands.add_parser("render", parents=[verdicts, previous], help="the report as pages and PDFs")
    render.add_argument("--url", default="", help="the folder's address on the web, where the report will lie")
    render.add_argument("--out", required=True, type=parse_path, metavar="DIR")
    render.add_argument("--renderer", default="auto", choices=["auto", "quarto", "pandoc"])
    render.add_argument("--data", type=parse_path, metavar="DIR", help="what gather wrote")
    render.add_argument("--drawn", action="store_true", help="`figures` has drawn all figures already")

    drawing = commands.add_parser("figures", parents=[verdicts], help="draw figures: of claims, of a family, of front")
    drawing.add_argument(
        "families", nargs="+", metavar="FAMILY", help="claims, front, measurements, or one page of these"
    )
    drawing.add_argument(
        "--out", required=True, type=parse_path, metavar="DIR", help="the folder figures of the report"
    )
    drawing.add_argument("--data", type=parse_path, metavar="DIR", help="what gather wrote")

    early = commands.add_parser("preliminary", parents=[nodes], help="a first page while rounds are still measured")
    early.add_argument("--out", required=True, type=parse_path, metavar="DIR")
    early.add_argument("--rounds", required=True, type=int, metavar="N", help="planned number of rounds")

    adding = commands.add_parser("add", help="check a contributed node (a pack), print what it changes, add it")
    adding.add_argument("pack", type=parse_path, metavar="FILE", help="what `python -m experiments pack` made")
    adding.add_argument("--dry-run", action="store_true", help="only print what it changes")
    adding.add_argument(
        "--nodes", type=parse_path, default=Path("data/nodes"), metavar="DIR", help="default: data/nodes"
    )
    adding.add_argument("--claims", type=parse_path, metavar="DIR", help="claim files (default: report/claims)")

    site = commands.add_parser("site", parents=[verdicts, previous], help="what a site needs beside the pages")
    site.add_argument(
        "--report", required=True, type=parse_path, metavar="DIR", help="what render wrote; it is added to"
    )
    site.add_argument("--data", required=True, type=parse_path, metavar="DIR", help="what gather wrote")

    compared = commands.add_parser("compare", help="two editions: which verdicts changed, and why")
    compared.add_argument(
        "old", type=parse_path, metavar="OLD", help="the earlier verdicts.json, or a site's editions.json"
    )
    compared.add_argument("new", type=parse_path, metavar="NEW", help="the later one")
    compared.add_argument("--json", type=parse_path, metavar="FILE", help="write the whole comparison")

    archive = commands.add_parser("edition", help="keep a built site as an edition, and update the README")
    archive.add_argument("--verdicts", type=parse_path, default=Path("results/verdicts.json"), metavar="FILE")
    archive.add_argument(
        "--data", type=parse_path, default=Path("results/data"), metavar="DIR", help="what gather wrote"
    )
    archive.add_argument(
        "--report", type=parse_path, default=Path("results/report"), metavar="DIR", help="a site, built"
    )
    archive.add_argument(
        "--readme", action="store_true", help="only update the README with the newest edition's answer"
    )
    archive.add_argument("--number", type=parse_count, metavar="N", help="of the edition (default: the next)")

    commands.add_parser("summary", parents=[verdicts], help="how many claims have which verdict")

    explain = commands.add_parser("explain", help="one claim, from the article to its verdict and what would turn it")
    explain.add_argument("claim", metavar="ID")
    explain.add_argument("--verdicts", type=parse_path, default=Path("results/verdicts.json"), metavar="FILE")
    explain.add_argument(
        "--data", type=parse_path, metavar="DIR", help="what gather wrote (default: data, beside them)"
    )
    explain.add_argument(
        "--reference", type=parse_path, metavar="DIR", help="published figures (default: data/reference)"
    )
    explain.add_argument(
        "--rows", type=_number_or_all, default="12", metavar="N|all", help="rows to print for each case"
    )

    ask = commands.add_parser("what-if", help="judge again with other thresholds, scopes or prices: what moves")
    ask.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="CLAIM[.PART].KEY=VALUE",
        help="a threshold, or a label of the scope, such as baseline or dtype",
    )
    ask.add_argument(
        "--price", nargs="+", action="extend", default=[], metavar="ENTRY=VALUE", help="a price of data/reference"
    )
    ask.add_argument("--data", type=parse_path, default=Path("results/data"), metavar="DIR", help="what gather wrote")
    ask.add_argument("--claims", type=parse_path, metavar="DIR", help="claim files (default: report/claims)")
    ask.add_argument("--reference", type=parse_path, metavar="DIR", help="published figures (default: data/reference)")

    listed = commands.add_parser(
        "references", help="published figures and the users of each; exits with 1 if one has none"
    )
    listed.add_argument(
        "--data", type=parse_path, metavar="DIR", help="what gather wrote (default: the published nodes)"
    )
    listed.add_argument("--claims", type=parse_path, metavar="DIR", help="claim files (default: report/claims)")
    listed.add_argument(
        "--reference", type=parse_path, metavar="DIR", help="published figures (default: data/reference)"
    )
    listed.add_argument(
        "--published", type=parse_path, metavar="DIR", help="published measurements (default: data/published)"
    )
    listed.add_argument("--records", action="store_true", help="every published measurement with its users")

    linter = commands.add_parser("lint", help="check the verdicts: every number with source, unit and interval")
    linter.add_argument("--verdicts", type=parse_path, default=Path("results/verdicts.json"), metavar="FILE")
    linter.add_argument(
        "--data", type=parse_path, default=Path("results/data"), metavar="DIR", help="what gather wrote"
    )
    linter.add_argument(
        "--reference", type=parse_path, metavar="DIR", help="published figures (default: data/reference)"
    )
    linter.add_argument(
        "--report", type=parse_path, metavar="DIR", help="the rendered report, for pages that were not made"
    )

    failed = commands.add_parser(
        "failures", help="pages and figures that could not be made; exits with 1 if there are any"
    )
    failed.add_argument(
        "--report", type=parse_path, default=Path("results/report"), metavar="DIR", help="what render wrote"
    )

    package = commands.add_parser("datapackage", help="describe the published nodes: datapackage.json beside them")
    package.add_argument(
        "--data", type=parse_path, default=Path("data"), metavar="DIR", help="holds nodes/ (default: data)"
    )

    known = commands.add_parser("quantities", help="quantities that can decide a claim: unit, labels, meaning")
    known.add_argument("word", nargs="?", default="", metavar="WORD", help="only those that mention it")

    new = commands.add_parser("new-claim", help="write a valid claim file, to be completed")
    new.add_argument("claim", metavar="ID", help="a capital letter and two digits")
    new.add_argument("--article", required=True, metavar="KEY", help="nuface, gpuserver or whygpu")
    new.add_argument("--section", required=True, metavar="HEADING", help="where in the article")
    new.add_argument("--says", required=True, metavar="SENTENCE", help="what the article says, in your own words")
    new.add_argument("--quantity", required=True, metavar="NAME", help="the quantity that decides it")
    new.add_argument("--rule", required=True, metavar="NAME", help="how the quantity is compared with the threshold")
    new.add_argument(
        "--threshold",
        required=True,
        nargs="+",
        type=parse_number,
        metavar="X",
        help="a number, or both ends of a range",
    )
    new.add_argument("--why", required=True, metavar="SENTENCE", help="why this threshold is a fair reading")
    new.add_argument("--note", required=True, metavar="SENTENCE", help="what is left out, and what would be unfair")
    new.add_argument("--kind", help="measured, derived or documented (default: as the quantity)")
    new.add_argument("--scope", nargs="+", default=[], metavar="LABEL=VALUE", help="labels of the cases in scope")
    new.add_argument("--option", nargs="+", default=[], metavar="KEY=VALUE", help="what the rule needs besides")
    new.add_argument(
        "--sensitivity", nargs="+", default=[], type=parse_number, metavar="X", help="other fair thresholds"
    )
    new.add_argument("--claims", type=parse_path, metavar="DIR", help="where it goes (default: report/claims)")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Raises StudyError and OSError, which `contract.errors.run_command` reports."""
    args = parser().parse_args(argv)
    if args.command == "gather":
        from report.data.gather import gather

        gather(args.nodes, args.out)
    elif args.command == "judge":
        from report.data.gathered_files import read_dataset
        from report.data.published_records import PUBLISHED, read_published
        from report.data.reference_figures import REFERENCE, read_reference
        from report.judging.judge import CLAIMS, judge

        claims, reference = args.claims or CLAIMS, args.reference or REFERENCE
        others = read_published(args.published or PUBLISHED)
        data = read_dataset(args.data, read_reference(reference), others)
        document = judge(data, args.out, claims)
        counts = ", ".join(f"{n} {verdict}" for verdict, n in document["tally"].items() if n)
        print(f"{len(document['verdicts'])} claims: {counts}: {args.out}", file=sys.stderr)
    elif args.command == "render":
        from report.pages.render import render

        failures = render(args.verdicts, args.out, args.renderer, args.data, args.url, args.previous, args.drawn)
        return 1 if failures.items else 0
    elif args.command == "figures":
        from report.pages.render import draw_figures

        written, failures = draw_figures(args.verdicts, args.data, args.out, args.families)
        print(f"{len(written)} figures: {args.out}", file=sys.stderr)
        return 1 if failures.items else 0
    elif args.command == "site":
        from report.pages.downloads import write_downloads

        written = write_downloads(args.report, args.verdicts, args.data, args.previous)
        print(f"{len(written)} files beside the pages: {args.report}", file=sys.stderr)
    elif args.command == "preliminary":
        from report.pages.preliminary_page import write_preliminary_page

        print(f"a preliminary page: {write_preliminary_page(args.nodes, args.out, args.rounds)}", file=sys.stderr)
    elif args.command == "add":
        from report.commands.add import add
        from report.judging.judge import CLAIMS

        for line in add(args.pack, args.nodes, args.dry_run, args.claims or CLAIMS):
            print(line, flush=True)
    elif args.command == "edition":
        from report.pages.editions import edition_release

        if args.readme:
            folder = edition_release.EDITIONS / str(edition_release.newest_edition())
        else:
            folder = edition_release.release_edition(args.verdicts, args.data, args.report, args.number)
        edition_release.write_readme(edition_release.record_in_current_words(folder))
        print(f"edition {folder.name}: {folder}, {edition_release.README.name}", file=sys.stderr)
    elif args.command == "compare":
        from contract.files import write_json
        from report.pages.editions import edition_comparison
        from report.pages.editions.edition_record import read_editions

        comparison = edition_comparison.compare_editions(read_editions(args.old)[-1], read_editions(args.new)[-1])
        if args.json:
            write_json(args.json, comparison)
        print("\n".join(edition_comparison.format_comparison(comparison)))
    elif args.command == "what-if":
        from report.commands import what_if

        what_if.answer_command(args)
    elif args.command == "references":
        from report.commands.list_references import list_references
        from report.data.published_records import PUBLISHED
        from report.data.reference_figures import REFERENCE
        from report.judging.judge import CLAIMS

        claims, reference = args.claims or CLAIMS, args.reference or REFERENCE
        text, unused = list_references(args.data, claims, reference, args.published or PUBLISHED, args.records)
        print(text)
        return 1 if unused else 0
    elif args.command == "lint":
        from report.commands.lint import print_faults
        from report.data.reference_figures import REFERENCE

        return print_faults(args.verdicts, args.data, args.reference or REFERENCE, args.report)
    elif args.command == "failures":
        from report.pages.failures import read_failures

        failures = read_failures(args.report)
        for failure in failures.items:
            print(failure, file=sys.stderr)
        return 1 if failures.items else 0
    elif args.command == "datapackage":
        from report.publish import write_published

        print(write_published(args.data))
    elif args.command == "new-claim":
        from report.commands.new_claim import new_claim, next_steps
        from report.judging.judge import CLAIMS

        print(next_steps(new_claim(args.claim, args.claims or CLAIMS, args)))
    elif args.command == "quantities":
        from report.commands import list_quantities

        print("\n".join(list_quantities.describe_quantities(args.word)))
    elif args.command == "explain":
        from report.commands.explain import explain, find_sources, find_verdict
        from report.data.reference_figures import REFERENCE
        from report.verdicts import read_verdicts

        document = read_verdicts(args.verdicts)
        claim = find_verdict(document, args.claim)
        sources = find_sources(args.verdicts, args.data, args.reference or REFERENCE, args.rows, claim)
        print(explain(document, args.claim, sources))
    else:
        from report.outcomes import tally
        from report.verdicts import read_verdicts

        print(tally(read_verdicts(args.verdicts)))
    return 0


def _number_or_all(text: str) -> int | None:
    """Parse a row limit: a number, or None for `all`. Raises ArgumentTypeError."""
    if text == "all":
        return None
    return parse_count(text)
