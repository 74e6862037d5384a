"""Attempts at a point in a round: a disturbed point is measured again, and its first quiet attempt counts.

The choice depends on statuses and flags, never on values, so that it prefers no result for its size.
"""

from __future__ import annotations

import pandas as pd

from contract.sample_flags import DISTURBED_SHARE, DISTURBING, parse_sample_flags

# Highest number of an attempt: a point is measured again at most twice per round.
MOST_ATTEMPTS = 3
POINT = ["node", "experiment", "device", "round", "backend", "dtype", "threads", "params"]


def disturbed_attempts(samples: pd.DataFrame) -> pd.Series:
    """Tell for each attempt at a point in a round if it is disturbed, as booleans with the index levels POINT, attempt.

    The attempt is disturbed if at least DISTURBED_SHARE of its timed samples have a flag in DISTURBING. A timed sample
    has a reading of the machine's state, with `elapsed_s`. Attempts without timed samples, or with a status that is not
    ok, are left out. samples: sample table, shape (samples, columns). Raises ValueError for an unknown flag.
    """
    flags = samples["flags"].astype(str)
    bad = [text for text in flags.unique() if any(flag.name in DISTURBING for flag in parse_sample_flags(text))]
    ok = samples["status"].eq("ok")
    keys = [*POINT, "attempt"]
    sound = ok.groupby([samples[key] for key in keys], observed=True).transform("all")
    timed = samples.loc[sound & samples["elapsed_s"].notna(), keys].assign(disturbed=flags.isin(bad))
    return timed.groupby(keys, observed=True)["disturbed"].mean() >= DISTURBED_SHARE


def samples_that_count(samples: pd.DataFrame) -> pd.Series:
    """Tell for each sample if it counts: if it is from its point's first quiet attempt in the round.

    If no attempt is quiet, the first attempt counts. All metrics of a point come from one attempt. The result has the
    index of `samples`. Raises ValueError, like `disturbed_attempts`.
    """
    if not samples["attempt"].gt(1).any():
        return pd.Series(True, index=samples.index)
    keys = [*POINT, "attempt"]
    attempts = samples[keys].drop_duplicates()
    disturbed = disturbed_attempts(samples)
    quiet = pd.MultiIndex.from_frame(attempts).isin(disturbed.index[~disturbed])
    attempts = attempts.assign(noisy=~quiet).sort_values(["noisy", "attempt"], kind="stable").drop_duplicates(POINT)
    return pd.Series(
        pd.MultiIndex.from_frame(samples[keys]).isin(pd.MultiIndex.from_frame(attempts[keys])), index=samples.index
    )


def count_repeats(samples: pd.DataFrame) -> dict[str, int]:
    """Count the points in a round that were measured again (`measured`), and those of them that became quiet (`quiet`).

    The result is empty without further attempts. Raises ValueError, like `disturbed_attempts`.
    """
    repeats = samples["attempt"].gt(1)
    if not repeats.any():
        return {}
    return {
        name: len(samples.loc[rows, POINT].drop_duplicates())
        for name, rows in (("measured", repeats), ("quiet", repeats & samples_that_count(samples)))
    }
