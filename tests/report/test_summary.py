"""The summary equals a direct computation that handles one series at a time, and it describes flags."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from contract.errors import StudyError
from contract.sample_flags import FLAGS, Flag, parse_sample_flags, worst_flags
from contract.sample_table import SAMPLES, validate
from report import statistics
from report.data import disturbances
from report.data.disturbances import TARGET_HALF_WIDTH, FlagSummary
from report.data.summary import COLUMNS, COUNTED, GROUP, POINT, SERIES, summarise

from .conftest import Factory

UNITS = {
    "time": "s", "time.forward": "s", "energy": "J", "repeat_share": "1", "matmul_time_share": "1", "spread_ulp": "1",
    "loss": "1",
}  # fmt: skip
TEXT = [name for name, column in SAMPLES.columns.items() if str(column.dtype) == "str"]
WORDS = [
    "busy: 12% other load", "busy: 31% other load", "busy: 9% other load; steal: 3%", "busy", "busy steal", "steal",
    "throttled: heat", "throttled: power cap", "throttled", "queued: waited for a core 5% of the time",
    "crowded: others had 0.7 cores, so that 2 threads shared 1.3 free cores", "crowded; busy",
    "clock: 8% lower", "memory: 1,200 pages a second; busy: 2% other load",
]  # fmt: skip


def table(seed: int, faults: float = 0.3) -> pd.DataFrame:
    """Draw samples from two nodes, with all oddities that the data dictionary allows. faults: how likely each is."""
    random = np.random.default_rng(seed)

    def pick(*words: Any) -> Any:
        return words[random.integers(len(words))]

    def trouble() -> bool:
        return bool(random.random() < faults)

    rows: list[dict[str, Any]] = []
    keys = {
        ("node-" + pick("a", "a", "b"), pick("gemm", "gemm", "gemm", "training"), pick("cpu", "cpu", "cpu", "cuda:0"),
         pick("torch", "numpy"), pick("", "float32"), pick(1, 2, 16), pick("{}", '{"n": 2}', '{"n": 10}'),
         pick(*UNITS))
        for _ in range(100)
    }  # fmt: skip
    for key in sorted(keys):
        metric = key[-1]
        centre = random.uniform(0.1, 1.2) * (1e-4 if metric == "time" else 1)
        still, noise = trouble(), 0.0 if trouble() else pick(0.001, 0.05, 0.4)
        flop, no_bytes, bad, flagged = (trouble() for _ in range(4))
        for number in random.choice(9, size=pick(1, 2, 3, 3, 3, 5), replace=False) + 1:
            shift = 1.0 if still else math.exp(random.normal(0, 0.1))
            failing = bad and bool(random.random() < 0.6)
            for sample in range(pick(1, 3, 4, 6, 9, 30)):
                status = pick("ok", "wrong", "oom", "timeout") if failing else "ok"
                value = centre * shift * math.exp(noise * random.normal())
                if metric.endswith("_share"):
                    value = min(value, 1.0)
                if metric == "energy" and key[1] == "gemm" and still:
                    value = 0.0
                rows.append(
                    {
                        **dict(zip(SERIES, key, strict=True)), "run": f"run{number}", "round": number, "attempt": 1,
                        "sample": sample,
                        "value": value if status in ("ok", "wrong") else math.nan,
                        "unit": pick("B", "1", "B/s") if metric == "loss" and flop else UNITS[metric],
                        "calls": 1, "flop": pick(1e9, 2e9, 3e9, math.nan) if flop else pick(1e9, math.nan),
                        "bytes": math.nan if no_bytes else 64.0,
                        "status": status,
                        "reason": "" if status == "ok" else pick("too large", "too slow", "odd; very"),
                        "stop_reason": pick("", "converged", "plateau", "budget"),
                        "error": pick(0.0, 1e-9, 1e-7), "tolerance": pick(1e-6, math.nan),
                        "elapsed_s": 1.0, "clock_mhz": math.nan, "memory_clock_mhz": math.nan,
                        "temperature_c": math.nan, "power_w": math.nan, "utilisation": math.nan,
                        "other_load": pick(0.02, 0.4, math.nan), "steal": pick(0.0, 0.07, math.nan),
                        "flags": pick(*WORDS) if flagged and random.random() < 0.5 else "", "origin": "synthetic",
                    }
                )  # fmt: skip
    samples = pd.DataFrame(rows)
    # `validate` checks one node at a time.
    checked = [validate(samples[samples["node"] == node], node) for node in ("node-a", "node-b")]
    return pd.concat(checked).sample(frac=1, random_state=seed)


def most_common(words: pd.Series) -> str:
    nonempty = words[words != ""]
    counts = {word: int((nonempty == word).sum()) for word in nonempty}
    return min(counts, key=lambda word: (-counts[word], word)) if counts else ""


def relative_half_width(values: Sequence[float]) -> float:
    ordered, n = sorted(values), len(values)
    if n < 6:
        return 0.0
    low, high = math.floor((n - 1.96 * math.sqrt(n)) / 2), math.ceil((n + 1.96 * math.sqrt(n)) / 2)
    return (ordered[min(n - 1, high)] - ordered[max(0, low)]) / 2 / float(np.median(ordered))


def sample_flags(used: pd.DataFrame) -> list[str]:
    counts: dict[str, int] = {}
    flags: list[Flag] = []
    for words in sorted(set(used["flags"]) - {""}):
        same = used[used["flags"] == words]
        for flag in parse_sample_flags(words):
            counts[flag.name] = counts.get(flag.name, 0) + len(same)
            load = {"busy": ("other_load", " other load"), "steal": ("steal", "")}.get(flag.name)
            if not flag.detail and load and same[load[0]].notna().any():
                flag = Flag(flag.name, f"{same[load[0]].max():.0%}{load[1]}")
            flags.append(flag)
    return [str(FlagSummary(flag.name, counts[flag.name], len(used), flag.detail)) for flag in worst_flags(flags)]


def round_flags(ok: pd.DataFrame, medians: pd.Series) -> list[str]:
    if len(medians) < 2 or (medians <= 0).any() or most_common(ok["unit"]) == "1":
        return []
    spread = medians.max() / medians.min() - 1
    widths = ok.groupby("round")["value"].agg(lambda values: relative_half_width(list(values)))
    return [f"unstable: rounds differ by {spread:.0%}"] if spread > 2 * max(TARGET_HALF_WIDTH, widths.max()) else []


def summarise_series(samples: pd.DataFrame) -> dict[str, Any]:
    """Compute a summary row without the columns that depend on its group. `medians` lists the medians by round."""
    ok, failed = samples[samples["status"] == "ok"], samples[samples["status"] != "ok"]
    used = ok if len(ok) else samples
    reason = most_common(failed["reason"])
    if len(ok) and len(failed):
        rounds = f"{failed['round'].nunique()} of {samples['round'].nunique()} rounds"
        reason = f"{rounds} {most_common(failed['status'])}: {reason}"
    medians = ok.groupby("round")["value"].median()
    return {
        **{name: most_common(used[name]) for name in ("unit", "stop_reason", "origin")},
        **{name: used[name].median() for name in ("flop", "bytes")},
        **{name: used[name].max() for name in ("error", "tolerance")},
        "status": "ok" if len(ok) else most_common(samples["status"]),
        "reason": reason,
        "n_rounds": len(medians),
        "n_samples": len(ok),
        "n_sessions": int(len(ok) > 0),
        "n_disturbed": sum(
            2 * sum("crowded" in text for text in texts) > len(texts) for _, texts in ok.groupby("round")["flags"]
        ),
        "flags": "; ".join([*sample_flags(used), *round_flags(ok, medians)]),
        "medians": medians.to_list(),
    }


# Each scale's function for medians, and its inverse.
SCALES: dict[str, tuple[Any, Any]] = {
    "log": (np.log, np.exp),
    "logit": (special.logit, special.expit),
    "linear": (np.array, np.array),
}


def estimate(medians: Sequence[float], variance: float, df: float, scale: str) -> dict[str, Any]:
    forward, inverse = SCALES[scale]
    y = forward(medians)
    se = math.sqrt(variance / len(y)) if df else math.nan
    half = float(statistics.half_width(se, df))
    ends = np.array([y.mean(), y.mean() - half, y.mean() + half])
    middle, low, high = inverse(ends)
    return {"estimate": middle, "low": low, "high": high, "log_se": se, "df": df, "scale": scale}


def mean_correlation(logs: list[Any]) -> float:
    """Return the mean correlation between the points that were measured in all rounds, or 0 if it is negative."""
    rounds = max(map(len, logs))
    full = [log for log in logs if len(log) == rounds and np.ptp(log) > 0]
    if rounds < 2 or len(full) < 2:
        return 0.0
    return max(0.0, float(np.corrcoef(full)[np.triu_indices(len(full), 1)].mean()))


# Columns on a variance and its prior.
MODERATION = ["variance", "prior_df", "prior_variance"]


def estimate_group(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Compute the estimates for a group of series with status ok."""
    metric, share = rows["metric"].iloc[0], (rows["unit"] == "1").all()
    df = [float(len(medians) - 1) for medians in rows["medians"]]
    timed_share = share and metric.endswith("share") and metric not in COUNTED
    scale = "linear"
    if timed_share and all(0 < min(medians) <= max(medians) < 1 for medians in rows["medians"]):
        scale = "logit"
    elif not share and all(min(medians) > 0 for medians in rows["medians"]):
        scale = "log"
    if scale != "linear":
        logs = [SCALES[scale][0](medians) for medians in rows["medians"]]
        variances = [np.var(log, ddof=1) if len(log) > 1 else 0.0 for log in logs]
        moderated = statistics.moderate(variances, df, mean_correlation(logs))
        priors = zip(moderated.own, moderated.prior_df, moderated.prior_variance, strict=True)
        series = zip(rows["medians"], moderated.variance, moderated.df, priors, strict=True)
        return [
            {**estimate(medians, variance, freedom, scale), **dict(zip(MODERATION, prior, strict=True))}
            for medians, variance, freedom, prior in series
        ]
    results = []
    for medians, freedom in zip(rows["medians"], df, strict=True):
        result: dict[str, Any]
        if freedom and len(set(medians)) == 1:
            # A value that is equal in all rounds is exact if it is counted; otherwise its spread is unknown.
            se = 0.0 if metric in COUNTED else math.nan
            result = dict.fromkeys(("low", "high"), medians[0] if se == 0 else math.nan)
            result |= {"estimate": medians[0], "log_se": se, "df": freedom, "scale": scale, "exact": se == 0}
        else:
            result = estimate(medians, np.var(medians, ddof=1) if freedom else 0.0, freedom, scale)
        result["variance"] = np.var(medians, ddof=1) if freedom else math.nan
        if share and metric.endswith("share"):
            result |= {end: min(1.0, max(0.0, result[end])) for end in ("low", "high") if not math.isnan(result[end])}
        results.append(result)
    return results


def summarise_directly(samples: pd.DataFrame) -> pd.DataFrame:
    """Compute the summary from its definitions, one series at a time."""
    groups = sorted(samples.groupby(SERIES), key=lambda item: item[0])
    rows = pd.DataFrame([{**dict(zip(SERIES, key, strict=True)), **summarise_series(part)} for key, part in groups])
    rows[["estimate", "low", "high", "log_se", "df", *MODERATION, "session_variance", "session_df"]] = math.nan
    rows["scale"] = pd.Series("", rows.index, dtype="str")
    for _, places in rows[rows["status"] == "ok"].groupby(GROUP).groups.items():
        for place, result in zip(places, estimate_group(rows.loc[places]), strict=True):
            if result.pop("exact", False):
                rows.loc[place, "flags"] = "; ".join(filter(None, [str(rows.loc[place, "flags"]), "exact"]))
            for name, number in result.items():
                rows.loc[place, name] = number
    for name in ("flop", "bytes"):
        whole_calls = (rows["unit"] == "s") & rows["metric"].isin(("time", "graph_time"))
        rows[f"{name}_per_s"] = (rows[name] / rows["estimate"]).where(whole_calls)
    return rows[[*POINT, *COLUMNS]]


def assert_same(actual: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert actual.dtypes.to_dict() == expected.dtypes.to_dict()
    pd.testing.assert_frame_equal(actual, expected, rtol=1e-12, atol=1e-15)


TABLES = [(seed, (0.0, 0.2, 0.5)[seed % 3]) for seed in range(6)]


@pytest.mark.parametrize(("seed", "faults"), TABLES)
def test_summary_matches_the_direct_implementation(seed: int, faults: float) -> None:
    samples = table(seed, faults)
    assert_same(summarise(samples), summarise_directly(samples))


def test_random_tables_cover_every_case() -> None:
    rows = pd.concat([summarise(table(seed, faults)) for seed, faults in TABLES])
    flags = rows["flags"]
    for words in ("unstable", "exact", "busy in", "(most: 40% other load)", "heat and power cap", "; unstable"):
        assert flags.str.contains(words, regex=False).any(), words
    assert rows["reason"].str.contains(" rounds ").any() and set(rows["status"]) > {"ok", "oom"}
    linear = np.isclose(rows["high"] + rows["low"], 2 * rows["estimate"], rtol=1e-9) & (rows["low"] < rows["high"])
    energy = rows["metric"].eq("energy") & rows["estimate"].gt(0)
    assert (energy & linear).any() and (energy & rows["low"].notna() & ~linear).any(), "one scale only"
    assert rows.loc[rows["metric"].str.endswith("_share"), "high"].eq(1).any()
    assert set(rows.loc[rows["metric"] == "matmul_time_share", "scale"]) >= {"linear", "logit"}


@pytest.mark.parametrize(
    "kind",
    [
        lambda column: column.astype(object),
        lambda column: column.astype(pd.CategoricalDtype(["zz", *sorted({*column, ""}, reverse=True), "aa"])),
        lambda column: pd.Series(
            pd.arrays.ArrowExtensionArray(arrow.array(column.astype(object)).dictionary_encode()), index=column.index
        ),
    ],
)
def test_text_column_types_and_row_order_do_not_matter(kind: Callable[[pd.Series], pd.Series]) -> None:
    samples = table(3)
    converted = samples.assign(**{name: kind(samples[name]) for name in TEXT})
    assert (converted.dtypes[TEXT] != samples.dtypes[TEXT]).all()
    turned = converted.sample(frac=1, random_state=5).reset_index(drop=True)
    pd.testing.assert_frame_equal(summarise(turned), summarise(samples), check_exact=True)


def test_nodes_are_summarised_independently() -> None:
    samples = table(6)
    single = [summarise(samples[samples["node"] == node]) for node in ("node-a", "node-b")]
    pd.testing.assert_frame_equal(pd.concat(single, ignore_index=True), summarise(samples), check_exact=True)


def test_noisy_device_does_not_widen_intervals_on_a_quiet_one(synthetic: Factory) -> None:
    node = synthetic("node-a", gpus=1)
    for n in (64, 128, 256):
        node.gemm(100, n=n, spread=1e-4, device="cuda:0")
    quiet = summarise(pd.DataFrame(node.rows))
    for n in (64, 128, 256):
        node.gemm(1, n=n, spread=0.5)
    with_noisy = summarise(pd.DataFrame(node.rows))
    with_noisy = with_noisy[with_noisy["device"] == "cuda:0"].reset_index(drop=True)
    pd.testing.assert_frame_equal(with_noisy, quiet, check_exact=True)


def test_failed_samples_give_rows_without_estimates() -> None:
    samples = table(7).assign(status="failed", reason="no such library", value=math.nan, flop=math.nan)
    summary = summarise(samples)
    assert_same(summary, summarise_directly(samples))
    assert len(summary) and summary["estimate"].isna().all() and (summary["reason"] == "no such library").all()
    assert list(summarise(table(0).head(0)).columns) == [*POINT, *COLUMNS]


def test_missing_text_is_refused_with_column_and_row() -> None:
    samples = table(0).astype({"unit": "category"})
    samples.iloc[4, samples.columns.get_loc("unit")] = None
    with pytest.raises(StudyError, match=r"column 'unit', row 4: the text is missing"):
        summarise(samples)


@pytest.mark.parametrize(
    ("texts", "columns", "expected"),
    [
        (["busy: 12% other load", "", "busy: 31% other load"], {}, "busy in 2 of 15 samples (most: 31% other load)"),
        (["throttled: power cap", "throttled: heat"], {}, "throttled in 2 of 15 samples (heat and power cap)"),
        # Flags in earlier data have no figures, so the figures come from the columns.
        (["busy steal", "busy", "throttled"], {"other_load": 0.31, "steal": 0.05}, "busy in 2 of 15 samples (most: 31% "
         "other load); steal in 1 of 15 samples (most: 5%); throttled in 1 of 15 samples"),
    ],
)  # fmt: skip
def test_flags_give_sample_counts_and_worst_values(
    synthetic: Factory, texts: list[str], columns: dict[str, float], expected: str
) -> None:
    node = synthetic().gemm(20)
    for row, words in zip(node.rows, texts, strict=False):
        row.update(flags=words, **columns)
    assert summarise(pd.DataFrame(node.rows))["flags"].tolist() == [expected]


details = st.from_regex(r"[a-z0-9][a-z0-9 %,.]{0,20}", fullmatch=True).map(str.strip)
counted_flags = st.builds(
    FlagSummary, st.sampled_from(sorted(FLAGS)), st.integers(0, 99), st.integers(1, 99), st.just("") | details
)
detail_flags = st.builds(FlagSummary, st.sampled_from(["unstable", "exact"]), most=details)


@given(st.lists(counted_flags | detail_flags, max_size=4))
def test_summary_flags_round_trip(flags: list[FlagSummary]) -> None:
    assert disturbances.parse_flags(disturbances.format_flags(flags)) == flags
    assert disturbances.parse_flags("busy exact") == [
        FlagSummary("busy"),
        FlagSummary("exact"),
    ]  # Earlier editions have this format.


@pytest.mark.parametrize(("rate", "flagged"), [(90.0, False), (145.0, True)])
def test_peak_exceeded_by_other_work_is_flagged(synthetic: Factory, rate: float, flagged: bool) -> None:
    node = synthetic("node")
    node.point("peak", 1e-3, backend="llvm", params={"kernel": "fma"}, flop=1e8)
    node.point("gemm", 1e-3 * 100 / rate, params={"n": 256}, flop=1e8)
    # The peak is for one thread, so a product on two threads may exceed it.
    node.point("gemm", 1e-5, params={"n": 256}, flop=1e8, threads=2)
    table = summarise(pd.DataFrame(node.rows))
    (flags,) = table.loc[table["experiment"] == "peak", "flags"]
    assert ("exceeded: gemm came to 1." in flags) is flagged
    assert not table.loc[table["experiment"] == "gemm", "flags"].str.contains("exceeded").any()
