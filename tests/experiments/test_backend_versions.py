"""Every backend in the samples has an entry in the table of versions, and its version is found if it is installed."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as compute
import pyarrow.parquet as parquet
import pytest

from contract.node import NODE_SCHEMA
from contract.schema import check_document
from experiments import backend_versions, backends
from experiments.backend_versions import (
    LIBRARIES,
    describe_package,
    describe_program,
    describe_shared_library,
    make_entry,
)
from experiments.backends.cblas import Cblas
from experiments.registry import experiments

NODES = Path(__file__).parents[2] / "data" / "nodes"
ENTRIES = NODE_SCHEMA["properties"]["software"]["properties"]["backends"]


def test_every_backend_of_an_experiment_has_an_entry() -> None:
    names = {name for about in experiments().values() for name in about.schema().get("backend", {}).get("enum", ())}
    assert len(names) > 30
    assert names - {*backends.GROUPS} - LIBRARIES.keys() == set(), "add the source of its version to LIBRARIES"


def test_every_published_backend_has_an_entry() -> None:
    published: set[str] = set()
    for path in NODES.glob("*/*.parquet"):
        published |= set(compute.unique(parquet.read_table(path, columns=["backend"])["backend"]).to_pylist())
    assert len(published) > 20
    assert published - {""} - LIBRARIES.keys() == set()


def test_installed_backends_have_version_and_build() -> None:
    versions, unreadable = backend_versions.backend_versions()
    check_document(versions, ENTRIES, "backends")
    assert unreadable == {}
    assert versions["torch"]["version"] == importlib.metadata.version("torch")
    assert "LLVM" in versions["llvm"]["build"] == versions["llvm-nt"]["build"]
    assert versions["onednn"]["build"].startswith("oneDNN ")
    assert versions["numpy"]["version"] == importlib.metadata.version("numpy")
    assert versions["python"]["version"] == sys.version.split()[0]
    assert not any(name in versions for name in backends.NAMES if name not in LIBRARIES)


def test_failing_backend_does_not_spoil_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise RuntimeError("a broken\npackage in /home/me/lib.so")

    libraries = {
        "broken": partial(describe_package, "numpy", build=fail),
        "absent": partial(describe_package, "no-such-package"),
        "onnx": partial(describe_package, "numpy"),
    }
    monkeypatch.setattr(backend_versions, "LIBRARIES", libraries)
    versions, unreadable = backend_versions.backend_versions()
    assert set(versions) == {"onnx"}
    assert unreadable == {"software.backends.broken": "RuntimeError: a broken package in …"}


@pytest.mark.parametrize(
    ("name", "printed", "expected"),
    [
        ("llama-server", "version: 6789 (0a1b2c3d)\nbuilt with cc (Debian 12.2.0) for x86_64-linux-gnu",
         {"version": "6789", "build": "commit 0a1b2c3d; cc (Debian 12.2.0) for x86_64-linux-gnu"}),
        ("llama-cli", "version: 1 (ab)", {"version": "1", "build": "commit ab"}),
        ("llama-server", "\x1b[2Jno version", {"version": "unknown"}),
    ],
)  # fmt: skip
def test_programs_version_is_read_from_it_or_its_sibling(
    name: str, printed: str, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in {"llama-server", name}:
        text = printed if program == name else "error: invalid argument"
        (tmp_path / program).write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    described = describe_program("llama-server", "llama-cli")
    assert described == {"package": "llama-server", **expected}
    assert describe_program("llama-none") is None


def test_shared_library_is_asked_in_its_own_process(tmp_path: Path) -> None:
    from threadpoolctl import threadpool_info

    assert describe_shared_library(Cblas("none", ("no-such-library",))) is None
    (tmp_path / "libbroken.so").write_bytes(b"no library")
    broken = describe_shared_library(Cblas("broken", (str(tmp_path / "libbroken.so"),)))
    assert broken == {"package": "libbroken.so", "version": "unknown"}
    pools: list[dict[str, Any]] = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    described = describe_shared_library(Cblas("openblas", (pools[0]["filepath"],)))
    assert described is not None
    assert described["version"] == pools[0]["version"]


def test_entry_has_no_identity_and_no_control_characters() -> None:
    entry = make_entry("a\x1b[2J", "1\n2", "host 10.0.0.1", "GCC 12", "x" * 500)
    assert entry["build"].startswith("GCC 12; xxx")
    check_document({"odd": entry, "empty": make_entry("", "", "")}, ENTRIES, "backends")
