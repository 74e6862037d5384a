"""Exhibits on language model servers, for the serving page: time to first token and streaming rate by user count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from report.data.network_labels import title
from report.data.table_rows import row_dicts
from report.formatting import format_count, format_exact, join_words, two_digits, with_unit
from report.pages.chart_rows import library_name, line_points
from report.pages.charts import Chart, line_chart
from report.pages.estimate_list import gpu_suffix
from report.pages.exhibit_types import Exhibit, Table, format_estimate, records
from report.pages.figure_data import View
from report.pages.heading_numbers import Sentence, amounts, sentence, shares
from report.pages.verdict_words import BARS, NOTHING
from report.quantities.language import SERVER

Case = Mapping[str, Any]
# Table headings, each with its quantity and unit.
COLUMNS = {
    "First token, median": ("first_token_s", "s"),
    "99% of first tokens within": ("p99_first_token_s", "s"),
    "99% of further tokens within": ("p99_token_s", "s"),
    "Whole answer, median": ("answer_s", "s"),
    "Tokens/s of each user": ("user_tokens_per_s", "tokens/s"),
    "Tokens/s of all": ("tokens_per_s", "tokens/s"),
}


def language_users(view: View, place: int) -> Iterable[Exhibit]:
    """Yield two exhibits by user count: the time to the first token, and each user's streaming rate."""
    by_quantity = {name: records(view.quantity(f"language_serving.{name}")) for name, _ in COLUMNS.values()}
    cases = {name: {(*_server_key(case), case["users"]): case for case in by_quantity[name]} for name in by_quantity}
    if not by_quantity["first_token_s"]:
        return
    note = f"● measured on {view.name}. {BARS}."
    first, rates = by_quantity["first_token_s"], by_quantity["user_tokens_per_s"]
    heading = _users_heading(
        "The first token of an answer comes after {alone} to one user", "after {crowd} to {users} at a time",
        "This run does not show when the first token of an answer comes", first, "s",
    )  # fmt: skip
    table = [
        [*_model_and_server(case), format_exact(case["users"]),
         *(format_estimate(cases[name][key], unit) if key in cases[name] else NOTHING for name,
           unit in COLUMNS.values())]
        for key, case in cases["first_token_s"].items()
    ]  # fmt: skip
    yield Exhibit(
        _users_chart(f"language-users-first-{place}", heading, first, "time to the first token, s", "s", note),
        [_workload_sentence(first), *_failure_sentences(view), *_client_sentences(view), *_missing_sentences(view)],
        Table(["Model", "Server", "Users", *COLUMNS], table, "llr" + "r" * len(COLUMNS),
              f"Language models behind a server on {view.name}").without_empty_columns(),
        [], heading,
    )  # fmt: skip
    if not rates:
        return
    heading = _users_heading(
        "An answer streams at {alone} to one user", "at {crowd} to each of {users}",
        "This run does not show how fast answers stream", rates, "tokens/s",
    )  # fmt: skip
    total_sentence = sentence(
        "All users together are written {all} at most.",
        all=amounts(_fastest_cases(by_quantity["tokens_per_s"]), "tokens/s"),
    )
    yield Exhibit(
        _users_chart(f"language-users-rate-{place}", heading, rates, "tokens a second of each user", "tokens/s", note),
        [str(total_sentence)] if total_sentence.is_complete else [], None, [], heading,
    )  # fmt: skip


def _server_key(case: Case) -> tuple[Any, ...]:
    return tuple(case[name] for name in SERVER)


def _model_and_server(case: Case) -> list[str]:
    """Name a case's model and server: 'llama-1b, Q4_K_M' and 'llama-server, GPU'."""
    server = library_name(str(case["backend"]))
    cores = (
        "" if not case["cores"] or gpu_suffix(str(case["device"])) else f", {format_count(int(case['cores']), 'core')}"
    )
    return [f"{title(str(case['model']))}, {case['format']}", f"{server}{cores}{gpu_suffix(str(case['device']))}"]


def _fewest_and_most_users(cases: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """Return cases with a single user, and cases with the highest user count."""
    most = max(int(case["users"]) for case in cases)
    return [case for case in cases if case["users"] == 1], [case for case in cases if case["users"] == most > 1]


def _users_heading(single: str, many: str, otherwise: str, cases: Sequence[Case], unit: str) -> Sentence:
    """Build a heading to compare a single user with the highest user count.

    single, many: the two halves of the heading, with the placeholders {alone} and {crowd}.
    otherwise: heading to use if a placeholder cannot be filled.
    """
    alone, crowd = _fewest_and_most_users(cases)
    users = format_count(max(int(case["users"]) for case in cases), "user")
    many = many.replace("{users}", users)
    if alone and crowd:
        return sentence(f"{single}, {many}", otherwise, alone=amounts(alone, unit), crowd=amounts(crowd, unit))
    if alone:
        return sentence(single, otherwise, alone=amounts(alone, unit))
    begin = single.partition("{")[0].rstrip().removesuffix(" after").removesuffix(" at")
    return sentence(f"{begin} {many}", otherwise, crowd=amounts(crowd, unit))


def _fastest_cases(cases: Sequence[Case]) -> list[Case]:
    """Return the case with the highest rate for each server."""
    best: dict[tuple[Any, ...], Case] = {}
    for case in cases:
        if _server_key(case) not in best or case["estimate"] > best[_server_key(case)]["estimate"]:
            best[_server_key(case)] = case
    return list(best.values())


def _users_chart(name: str, heading: Sentence, cases: Sequence[Case], axis: str, unit: str, note: str) -> Chart:
    """Return a chart with a line for each server, against the user count."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(", ".join(_model_and_server(case)), []).append(case)
    table = pd.DataFrame(
        [
            {**point, "server": server}
            for server, server_cases in groups.items()
            for point in line_points(server_cases, "users")
        ]
    )
    alt = "; ".join(
        f"{point['server']}, {format_count(int(point['x']), 'user')}: {with_unit(point['y'], unit)}"
        for point in row_dicts(table)
    )
    return Chart(name, str(heading), line_chart(table, "x", "y", "server", axis=("users at a time", axis)), note, alt)


def _workload_sentence(cases: Sequence[Case]) -> str:
    token_counts = sorted({(int(case["prompt_tokens"]), int(case["new_tokens"])) for case in cases})
    work = join_words([f"{prompt:,} tokens and reads {new:,}" for prompt, new in token_counts], "or")
    return (
        f"Each user sends {work} as they stream, and asks again as soon as the answer is whole; no prompt comes twice. "
        "The model's weights are random, which changes nothing of the work."
    )


def _failure_sentences(view: View) -> list[str]:
    """Return a sentence for each server and user count for which answers failed."""
    failed = [record for record in records(view.quantity("language_serving.failed_share")) if record["estimate"] > 0]
    sentences = []
    for record in failed:
        users = format_count(int(record["users"]), "user")
        text = f"Of the answers to {users} of {', '.join(_model_and_server(record))}, {{share}} failed."
        sentences.append(sentence(text, share=shares([record])))
    return [str(text) for text in sentences if text.is_complete]


def _client_sentences(view: View) -> list[str]:
    """State the share of CPU time that the process of the simulated users took, if it is 1% or more."""
    share = view.points("language-serving", "client_share")["estimate"].max()
    if not share >= 0.01:
        return []
    return [f"The users' own process took up to {two_digits(100 * share)}% of the time of the server's cores."]


def _missing_sentences(view: View) -> list[str]:
    """List the loads that were not measured, with reasons."""
    table = view.data.table
    rows = table[(table["node"] == view.node) & (table["experiment"] == "language-serving") & (table["status"] != "ok")]
    counts = rows.groupby(["backend", "status", "reason"], observed=True, sort=False).size()
    texts = [
        f"{library_name(backend)}, {format_count(int(points), 'load')} {status}: {reason}"
        for (backend, status, reason), points in zip(counts.index.tolist(), counts, strict=True)
    ]
    return [f"Not measured here: {'; '.join(texts)}."] if texts else []
