"""Starts the ranks of one job through torchrun, takes their answer, and sees to it that none of them stays behind."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from experiments import environment
from experiments.work import HarnessError, Unsupported

# Seconds that ranks get to end by themselves before they are killed.
GRACE_S = 5.0
_HERE = "127.0.0.1"


def answer(
    ranks: int, order: Mapping[str, Any], threads: int = 0, command: Sequence[str] = ("-m", "experiments.several.rank")
) -> dict[str, Any]:
    """What the ranks of a job found: rank 0's answer to `order` (see `experiments.several.rank`).

    threads: of each rank; 0 leaves that to torchrun. Raises Unsupported, MemoryError or RuntimeError with the
    reason of the rank that failed first, HarnessError where none says one.
    """
    with _launched(ranks, order, threads, command) as (child, told, said):
        code = child.wait()
        told.seek(0)
        lines = [json.loads(line) for line in told.read().splitlines() if line.startswith(b"{")]
        said.seek(0)
        complaints = said.read().decode(errors="replace")
    # The worker's log is where a traceback is looked for.
    sys.stderr.write(complaints)
    for line in lines:
        if "failed" in line:
            raise {"unsupported": Unsupported, "oom": MemoryError}.get(line["failed"], RuntimeError)(line["reason"])
    if code or not lines:
        last = ([line for line in complaints.splitlines() if line.strip()] or ["no word"])[-1].strip()
        raise HarnessError(f"torchrun ended with exit code {code} and no answer: {last}")
    found: dict[str, Any] = lines[-1]
    return found


@contextlib.contextmanager
def _launched(
    ranks: int, order: Mapping[str, Any], threads: int, command: Sequence[str]
) -> Iterator[tuple[subprocess.Popen[bytes], Any, Any]]:
    """torchrun at work, with files for what the ranks answer and what they complain of.

    Its standard input, which every rank inherits, is a pipe that only this process can
    close: by ending it, however that happens, it ends the ranks, who wait for that.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder, contextlib.ExitStack() as stack:
        told, said = (stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(2))
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(ranks)]
        # By number: some machines look up names, their own among them, for seconds or in vain.
        rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{_HERE}:0", "--local-addr", _HERE]
        child = subprocess.Popen(
            [*launcher, *rendezvous, "--log-dir", folder, *command, json.dumps({**order, "folder": folder})],
            stdin=subprocess.PIPE,
            stdout=told,
            stderr=said,
            env={**environment.clean(), **_environment(threads)},
            # The ranks import what this process has imported, from wherever it stands.
            cwd=Path(__file__).parents[2],
        )
        try:
            yield child, told, said
        finally:
            _end(child)


def _environment(threads: int) -> dict[str, str]:
    """Variables of the ranks: gloo and NCCL set their connections up over the loopback."""
    loopback = next((name for name in psutil.net_if_addrs() if name.startswith("lo")), "lo")
    limited = {"OMP_NUM_THREADS": str(threads)} if threads else {}
    return {"MASTER_ADDR": _HERE, "GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback, **limited}


def _end(child: subprocess.Popen[bytes]) -> None:
    """End torchrun and its ranks, and wait until they are gone."""
    try:
        family = psutil.Process(child.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    assert child.stdin is not None
    child.stdin.close()
    try:
        child.wait(GRACE_S if family else 0.1)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    for left in psutil.wait_procs(family, GRACE_S)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()
