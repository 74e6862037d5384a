"""Command line of the report: from node folders to verdicts and pages, and tools to extend them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from contract.arguments import Parser, integer_between, list_commands, parse_count, parse_number, parse_path

# Each command imports the data libraries that it needs, so that `summary` and `--help` start fast.
# Commands by audience, as the help lists them.
GROUPS = {
    "For readers": ("explain", "what-if", "advise", "numbers", "overview", "summary", "references", "compare"),
    "For contributors": ("quantities", "new-claim", "add"),
    "Steps of a study, which `make study` runs": (
        "gather", "preliminary", "undecided", "judge", "calibrate", "figures", "render", "dataset", "site", "lint",
        "failures", "embed",
    ),
    "For maintainers": ("edition", "wanted", "datapackage"),
}  # fmt: skip
VERDICTS_HELP = "verdicts.json from `judge` (default: results/verdicts.json, else the newest edition's)"
DATA_HELP = "output folder of `gather` (default: results/data, else the published machines)"


def parser() -> argparse.ArgumentParser:
    """Return the parser for all commands."""
    top = Parser(
        prog="python -m report",
        usage="%(prog)s COMMAND …",
        description="Explain the verdicts on the articles' claims, and make verdicts and report from measurements.",
    )
    commands = top.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="python -m report"
    )

    nodes = Parser(add_help=False)
    nodes.add_argument(
        "--nodes",
        nargs="+",
        action="extend",
        required=True,
        type=parse_path,
        metavar="DIR",
        help="node folders, or folders that contain some; if several hold the same node, the first counts",
    )

    gather = commands.add_parser(
        "gather", parents=[nodes], description="Gather the measurements of machines into tidy tables"
    )
    gather.add_argument("--out", required=True, type=parse_path, metavar="DIR")

    claims = _folder_option("--claims", "claim files (default: report/claims)")
    reference = _folder_option("--reference", "published figures (default: data/reference)")
    published = _folder_option("--published", "published measurements (default: data/published)")

    judge = commands.add_parser(
        "judge",
        parents=[claims, reference, published],
        description="Decide every claim, and write the verdicts as JSON and CSV",
    )
    judge.add_argument("--data", required=True, type=parse_path, metavar="DIR", help="output folder of `gather`")
    judge.add_argument("--out", required=True, type=parse_path, metavar="FILE")

    verdicts = Parser(add_help=False)
    verdicts.add_argument(
        "--verdicts", required=True, type=parse_path, metavar="FILE", help="verdicts.json from `judge`"
    )

    previous = Parser(add_help=False)
    previous.add_argument(
        "--previous", type=parse_path, metavar="FILE", help="an earlier verdicts.json, or a site's editions.json"
    )

    render = commands.add_parser(
        "render", parents=[verdicts, previous], description="Write the report as web pages and PDFs"
    )
    render.add_argument("--url", default="", help="web address at which the report will be published")
    render.add_argument("--out", required=True, type=parse_path, metavar="DIR")
    render.add_argument("--renderer", default="auto", choices=["auto", "quarto", "pandoc"])
    render.add_argument("--data", type=parse_path, metavar="DIR", help="output folder of `gather`")
    render.add_argument(
        "--advice", type=parse_path, metavar="FILE", help="output of `calibrate` (default: data/advice.json)"
    )
    render.add_argument("--drawn", action="store_true", help="reuse the figures that `figures` has drawn in OUT")

    drawing = commands.add_parser("figures", parents=[verdicts], description="Draw the figures of some pages")
    drawing.add_argument(
        "families",
        nargs="+",
        action="extend",
        metavar="FAMILY",
        help="claims, front, measurements, or the name of one page of measurements",
    )
    drawing.add_argument("--out", required=True, type=parse_path, metavar="DIR", help="the report's folder for figures")
    drawing.add_argument("--data", type=parse_path, metavar="DIR", help="output folder of `gather`")

    early = commands.add_parser(
        "preliminary", parents=[nodes], description="Write a first page while a study still measures"
    )
    early.add_argument("--out", required=True, type=parse_path, metavar="DIR")
    early.add_argument("--rounds", required=True, type=int, metavar="N", help="planned number of rounds")

    adding = commands.add_parser(
        "add",
        parents=[claims],
        description="Check a contributed pack, list the verdicts that it changes, and add its machine",
    )
    adding.add_argument(
        "pack",
        type=parse_path,
        metavar="FILE",
        help="file from `python -m experiments pack`, or that file unpacked into a folder",
    )
    adding.add_argument("--dry-run", action="store_true", help="print the changed verdicts, but add nothing")
    adding.add_argument(
        "--nodes", type=parse_path, default=Path("data/nodes"), metavar="DIR", help="default: data/nodes"
    )

    site = commands.add_parser(
        "site",
        parents=[verdicts, previous],
        description="Add the files to download, and the record of editions, to a rendered report",
    )
    site.add_argument(
        "--report",
        required=True,
        type=parse_path,
        metavar="DIR",
        help="output folder of `render`; the files are added to it",
    )
    site.add_argument(
        "--dataset", required=True, type=parse_path, metavar="DIR", help="output folder of `dataset` for these verdicts"
    )

    open_cases = commands.add_parser(
        "undecided",
        parents=[verdicts],
        description="List the undecided cases that more rounds could decide",
    )
    open_cases.add_argument("--data", required=True, type=parse_path, metavar="DIR", help="output folder of `gather`")
    open_cases.add_argument("--node", required=True, metavar="ID", help="the node to measure further")
    open_cases.add_argument("--out", required=True, type=parse_path, metavar="FILE")

    compared = commands.add_parser(
        "compare", description="List the verdicts that changed between two editions, and why"
    )
    compared.add_argument(
        "old", type=parse_path, metavar="OLD", help="the earlier verdicts.json, or a site's editions.json"
    )
    compared.add_argument("new", type=parse_path, metavar="NEW", help="the later verdicts.json")
    compared.add_argument("--json", type=parse_path, metavar="FILE", help="JSON file for the whole comparison")

    archive = commands.add_parser(
        "edition", description="Archive a rendered report as an edition, and update the README"
    )
    archive.add_argument("--verdicts", type=parse_path, default=Path("results/verdicts.json"), metavar="FILE")
    archive.add_argument(
        "--data", type=parse_path, default=Path("results/data"), metavar="DIR", help="output folder of `gather`"
    )
    archive.add_argument(
        "--report", type=parse_path, default=Path("results/report"), metavar="DIR", help="folder of the built site"
    )
    archive.add_argument(
        "--readme", action="store_true", help="only update the answer in the README from the newest edition"
    )
    archive.add_argument("--number", type=parse_count, metavar="N", help="number of the edition (default: the next)")

    summary = commands.add_parser("summary", description="Count the claims per verdict")
    summary.add_argument("--verdicts", type=parse_path, metavar="FILE", help=VERDICTS_HELP)

    overview = commands.add_parser(
        "overview", description="Show this machine beside the published ones, its noise, and the way to the report"
    )
    overview.add_argument("--results", type=parse_path, default=Path("results"), metavar="DIR", help="default: results")

    embedding = commands.add_parser("embed", description="Put a page of a rendered report into one file")
    embedding.add_argument("page", type=parse_path, nargs="?", default=Path("results/report/index.html"))
    embedding.add_argument("--out", required=True, type=parse_path, metavar="FILE")

    numbers = commands.add_parser(
        "numbers", description="Print a machine's five main numbers: its best results by device"
    )
    numbers.add_argument("node", nargs="*", help="node id (default: the machines that are not published)")
    numbers.add_argument("--data", type=parse_path, metavar="DIR", help=DATA_HELP)

    explain = commands.add_parser(
        "explain",
        parents=[reference],
        description="Explain the verdict on a claim in a few lines, or in full with --all",
        examples=["python -m report explain W15", "python -m report explain W15 --all"],
    )
    explain.add_argument("claim", metavar="ID")
    explain.add_argument("--verdicts", type=parse_path, metavar="FILE", help=VERDICTS_HELP)
    explain.add_argument("--all", action="store_true", help="print every step, case, source and trial")
    explain.add_argument(
        "--data",
        type=parse_path,
        metavar="DIR",
        help="output folder of `gather` (default: the folder data beside the verdicts)",
    )
    explain.add_argument(
        "--rows", type=_number_or_all, default="12", metavar="N|all", help="rows to print for each case, after --all"
    )

    ask = commands.add_parser(
        "what-if",
        parents=[claims, reference],
        description="List the verdicts that another threshold, scope or price would change",
        examples=[
            "python -m report what-if --set W15.threshold=4000",
            "python -m report what-if --price aws-p5.48xlarge.usd_per_hour=98",
        ],
    )
    ask.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="CLAIM[.PART].KEY=VALUE",
        help="a threshold, or a label of the scope, such as baseline or dtype",
    )
    ask.add_argument(
        "--price", nargs="+", action="extend", default=[], metavar="ENTRY=VALUE", help="a price from data/reference"
    )
    ask.add_argument("--data", type=parse_path, metavar="DIR", help=DATA_HELP)

    adviser = commands.add_parser(
        "advise",
        description="Answer for your own job: does it fit, how long does it take, what does it cost?",
        examples=[
            "python -m report advise --chat --model llama-3.1-8b --on this",
            "python -m report advise --train --model resnet50 --within 2h",
        ],
    )
    job_kind = adviser.add_mutually_exclusive_group()
    for flag, kind, meaning in (
        ("--chat", "decode", "chat with a language model"),
        ("--prompt", "prompt", "read a long prompt"),
        ("--serve", "serve", "serve a language model to many users"),
        ("--train", "train", "train from scratch"),
        ("--fine-tune", "fine-tune", "fine-tune all weights"),
        ("--lora", "lora", "fine-tune by LoRA"),
        ("--classify", "classify", "classify pictures"),
        ("--detect", "detect", "find objects in pictures"),
        ("--embed", "embed", "embed texts"),
        ("--transcribe", "transcribe", "transcribe speech"),
        ("--pictures", "pictures", "make pictures"),
        ("--tables", "tables", "learn from tables by boosted trees"),
    ):
        job_kind.add_argument(flag, dest="kind", action="store_const", const=kind, help=meaning)
    adviser.add_argument("--model", metavar="NAME", help="such as llama-3.1-8b, resnet50 or whisper-large-v3")
    adviser.add_argument("--parameters", type=parse_number, metavar="N", help="parameters, for a model without a name")
    adviser.add_argument("--precision", metavar="FORMAT", help="such as Q4_K_M, fp16 or int8")
    adviser.add_argument("--software", metavar="NAME", help="such as llama.cpp, vLLM or PyTorch (default: as found)")
    adviser.add_argument(
        "--year",
        type=integer_between(2000, 2100),
        help="the software's year (default: 2025)",
    )
    adviser.add_argument(
        "--on",
        nargs="+",
        action="extend",
        metavar="MACHINE",
        help="machines, such as 'RTX 3060 12GB'; `this` for this one (default: all)",
    )
    adviser.add_argument(
        "--work",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=NUMBER",
        help="sizes: tokens_in, tokens_out, users, samples, tokens_per_sample, steps, batch, epochs, rows, …",
    )
    adviser.add_argument("--want", metavar="RATE", help="the rate you want, such as '20 token/s'")
    adviser.add_argument("--within", metavar="TIME", help="the time you have, such as 2h")
    adviser.add_argument("--budget", type=parse_number, metavar="USD", help="leave out chips that cost more at launch")
    adviser.add_argument(
        "--normal", metavar="RESULT", help="your own time or rate, such as 30h or '8 token/s': is it normal?"
    )
    adviser.add_argument("--measure", action="store_true", help="measure a point of this kind here, in two minutes")
    adviser.add_argument("--jobs", type=parse_path, metavar="FILE", help="a JSON object a line with a job each")
    adviser.add_argument("--json", action="store_true", help="answer one JSON object a line (the form for --jobs)")

    calibration = commands.add_parser("calibrate", description="Fit the constants of `advise` to published results")
    calibration.add_argument(
        "--data", type=parse_path, metavar="DIR", help="output folder of `gather`, whose results count as outcomes too"
    )
    calibration.add_argument("--out", type=parse_path, default=Path("data/advice.json"), metavar="FILE")

    wanted = commands.add_parser(
        "wanted",
        parents=[verdicts],
        description="List the machines that would decide open claims, and write data/wanted.json",
    )
    wanted.add_argument("--out", type=parse_path, metavar="FILE", help="default: data/wanted.json")

    listed = commands.add_parser(
        "references",
        parents=[claims, reference, published],
        description="List the published figures, and who uses each (exit code 1 if nobody uses one)",
    )
    listed.add_argument(
        "--data", type=parse_path, metavar="DIR", help="output folder of `gather` (default: the published nodes)"
    )
    listed.add_argument("--records", action="store_true", help="list the published measurements with their users, too")

    linter = commands.add_parser(
        "lint",
        parents=[reference],
        description="Check that every number in the verdicts has a source, a unit and an interval",
    )
    linter.add_argument("--verdicts", type=parse_path, default=Path("results/verdicts.json"), metavar="FILE")
    linter.add_argument(
        "--data", type=parse_path, default=Path("results/data"), metavar="DIR", help="output folder of `gather`"
    )
    linter.add_argument(
        "--report", type=parse_path, metavar="DIR", help="output folder of `render`, to check that all pages were made"
    )

    failed = commands.add_parser(
        "failures", description="List the pages and figures that could not be made (exit code 1 if there are any)"
    )
    failed.add_argument(
        "--report", type=parse_path, default=Path("results/report"), metavar="DIR", help="output folder of `render`"
    )

    dataset = commands.add_parser(
        "dataset",
        parents=[reference, published],
        description="Write all measurements, published figures and verdicts as tables with ids",
    )
    dataset.add_argument(
        "--data", type=parse_path, default=Path("results/data"), metavar="DIR", help="output folder of `gather`"
    )
    dataset.add_argument("--verdicts", type=parse_path, default=Path("results/verdicts.json"), metavar="FILE")
    target = dataset.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=parse_path, metavar="DIR", help="folder to write; an earlier dataset is replaced")
    target.add_argument(
        "--check", type=parse_path, metavar="DIR", help="check a dataset instead: digests, columns, keys, references"
    )

    package = commands.add_parser(
        "datapackage",
        description="Describe the files of data/ in datapackage.json and SHA256SUMS, or check them",
    )
    package.add_argument("--check", action="store_true", help="compare the files with SHA256SUMS instead")
    package.add_argument(
        "--data",
        type=parse_path,
        default=Path("data"),
        metavar="DIR",
        help="folder that contains nodes/ (default: data)",
    )

    known = commands.add_parser(
        "quantities", description="List the quantities that can decide a claim, with unit, labels and meaning"
    )
    known.add_argument(
        "word", nargs="?", default="", metavar="WORD", help="list only quantities that mention this word"
    )

    new = commands.add_parser("new-claim", description="Write a valid claim file for you to complete")
    new.add_argument("claim", metavar="ID", help="a capital letter and two digits")
    new.add_argument("--article", required=True, metavar="KEY", help="nuface, gpuserver or whygpu")
    new.add_argument(
        "--section", required=True, metavar="HEADING", help="heading of the article's section; join several with '; '"
    )
    new.add_argument("--says", required=True, metavar="SENTENCE", help="the article's statement in your own words")
    new.add_argument(
        "--word",
        default="none",
        metavar="WORD",
        help="the article's word for how often it is so, such as can, most or every; the rule must fit it (none)",
    )
    new.add_argument("--quantity", required=True, metavar="NAME", help="quantity that decides the claim")
    new.add_argument(
        "--rule",
        required=True,
        metavar="NAME",
        help="rule for comparing the quantity with the threshold; the file explains all rules",
    )
    new.add_argument(
        "--threshold",
        required=True,
        nargs="+",
        action="extend",
        type=parse_number,
        metavar="X",
        help="a number, or both ends of a range",
    )
    new.add_argument("--why", required=True, metavar="SENTENCE", help="reason that this threshold is a fair reading")
    new.add_argument(
        "--note",
        required=True,
        metavar="SENTENCE",
        help="parts of the statement that are left out, and readings that would be unfair",
    )
    new.add_argument("--kind", help="measured, derived or documented (default: the quantity's own kind)")
    new.add_argument(
        "--scope", nargs="+", action="extend", default=[], metavar="LABEL=VALUE", help="labels of the cases in scope"
    )
    new.add_argument(
        "--option",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="options of the rule, such as over=device of=gpu to=cpu for a ratio",
    )
    new.add_argument(
        "--sensitivity",
        nargs="+",
        action="extend",
        default=[],
        type=parse_number,
        metavar="X",
        help="other fair thresholds",
    )
    new.add_argument("--claims", type=parse_path, metavar="DIR", help="folder for the file (default: report/claims)")
    top.epilog = list_commands(commands.choices, GROUPS)
    return top


def _folder_option(name: str, meaning: str) -> Parser:
    """Return a parent parser with an option for an input folder."""
    parent = Parser(add_help=False)
    parent.add_argument(name, type=parse_path, metavar="DIR", help=meaning)
    return parent


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
        from report.outcomes import format_counts

        claims, reference = args.claims or CLAIMS, args.reference or REFERENCE
        others = read_published(args.published or PUBLISHED)
        data = read_dataset(args.data, read_reference(reference), others)
        document = judge(data, args.out, claims)
        counts = format_counts(document["tally"])
        print(f"{len(document['verdicts'])} claims: {counts}: {args.out}", file=sys.stderr)
    elif args.command == "render":
        from report.pages.render import render

        failures = render(
            args.verdicts, args.out, args.renderer, args.data, args.url, args.previous, args.drawn, args.advice
        )
        return 1 if failures.items else 0
    elif args.command == "figures":
        from report.pages.render import draw_figures

        written, failures = draw_figures(args.verdicts, args.data, args.out, args.families)
        print(f"{len(written)} figures: {args.out}", file=sys.stderr)
        return 1 if failures.items else 0
    elif args.command == "site":
        from report.pages.downloads import write_downloads

        written = write_downloads(args.report, args.verdicts, args.dataset, args.previous)
        print(f"{len(written)} files beside the pages: {args.report}", file=sys.stderr)
    elif args.command == "embed":
        from report.pages.embedded_page import embed_page

        embed_page(args.page, args.out)
    elif args.command == "numbers":
        from report.commands.machine_numbers import print_numbers

        print_numbers(args.data, args.node)
    elif args.command == "undecided":
        from report.commands.undecided import write_undecided

        number = write_undecided(args.verdicts, args.data, args.node, args.out)
        print(f"{number} undecided cases with points of {args.node}: {args.out}", file=sys.stderr)
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
    elif args.command == "advise":
        from report.commands import advise

        advise.answer_command(args)
    elif args.command == "calibrate":
        from datetime import UTC, datetime

        from contract.files import write_json
        from report.advice.calibration import calibrate, describe
        from report.advice.outcomes import read_outcomes

        outcomes = read_outcomes()
        if args.data:
            from report.advice.own_outcomes import own_outcomes

            own, left_out = own_outcomes(args.data)
            outcomes += own
            for machine, reason in left_out.items():
                print(f"note: the adviser leaves out results of {machine}: {reason}", file=sys.stderr)
        record = calibrate(outcomes, datetime.now(UTC).date())
        write_json(args.out, record)
        print("\n".join(describe(record)))
    elif args.command == "wanted":
        import msgspec

        from contract import machine_needs
        from contract.files import write_json
        from report.verdicts import read_verdicts
        from report.wanted_machines import wanted_machines

        content = wanted_machines(read_verdicts(args.verdicts))
        write_json(args.out or machine_needs.WANTED, msgspec.to_builtins(content), in_lines=True)
        print("\n".join(machine_needs.format_table(machine_needs.machine_rows(content.needs))))
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
    elif args.command == "dataset":
        from report.data.published_records import PUBLISHED, read_published
        from report.data.reference_figures import REFERENCE, read_reference
        from report.dataset.check import print_faults as print_dataset_faults
        from report.dataset.package import write_dataset

        if args.check:
            return print_dataset_faults(args.check)
        figures, others = read_reference(args.reference or REFERENCE), read_published(args.published or PUBLISHED)
        written = write_dataset(args.data, args.verdicts, args.out, figures, others)
        print(f"{len(written)} files: {args.out}", file=sys.stderr)
    elif args.command == "datapackage":
        from report.publish import datapackage

        if args.check:
            return datapackage.print_faults(args.data)
        print(datapackage.write_published(args.data))
    elif args.command == "new-claim":
        from report.commands.new_claim import new_claim, next_steps
        from report.judging.judge import CLAIMS

        print(next_steps(new_claim(args.claim, args.claims or CLAIMS, args)))
    elif args.command == "quantities":
        from report.commands import list_quantities

        print("\n".join(list_quantities.describe_quantities(args.word)))
    elif args.command == "explain":
        from report.commands.explain import explain, find_sources, find_verdict
        from report.commands.short_explanation import explain_shortly
        from report.data.reference_figures import REFERENCE
        from report.verdicts import find_verdicts, read_any_format, read_verdicts

        path = find_verdicts(args.verdicts)
        if not args.all:
            print(explain_shortly(read_any_format(path), args.claim, path))
            return 0
        document = read_verdicts(path)
        claim = find_verdict(document, args.claim)
        sources = find_sources(path, args.data, args.reference or REFERENCE, args.rows, claim)
        print(explain(document, args.claim, sources))
    elif args.command == "overview":
        from report.commands.overview import overview_lines
        from report.verdicts import read_verdicts

        tally_by_verdict = read_verdicts(args.results / "verdicts.json")["tally"]
        print("\n".join(overview_lines(args.results, tally_by_verdict)))
    else:
        from report.outcomes import tally
        from report.verdicts import find_verdicts, read_any_format

        print(tally(read_any_format(find_verdicts(args.verdicts))))
    return 0


def _number_or_all(text: str) -> int | None:
    """Parse a row limit: a number, or None for `all`. Raises ArgumentTypeError."""
    if text == "all":
        return None
    return parse_count(text)
