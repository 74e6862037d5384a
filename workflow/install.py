"""Install the study into this Python beside the packages that it has, and change none of them without need.

    python3 -m workflow.install          # or, with extras: python3 -m workflow.install gpu

Only pip has to be there. Installed packages keep their versions if the study runs with them. The others come in the
versions that constraints.txt pins, or in the newest ones that suit the installed packages.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any

from contract.arguments import Parser
from contract.errors import StudyError, run_command
from contract.files import read_json, write_json
from contract.provenance import NAME
from workflow.package_variants import normal_name
from workflow.pip_progress import Progress, follow_pip

ROOT = Path(__file__).resolve().parents[1]
# Packages that other software on the machine is built for. They never change.
CORE = re.compile("torch|torchvision|torchaudio|triton|nvidia-.*|cupy.*|jax|jaxlib|tensorflow|numpy|protobuf")
# Versions before an install. The file is left over if the install was cut off.
BEFORE = ROOT / "build/before-install.json"
# pip's words for versions that exclude each other.
CONFLICT = re.compile("ResolutionImpossible|conflicting dependencies|No matching distribution")
# pip's words for an index that did not answer. After them, pip too says that no distribution matches.
OFFLINE = re.compile(r"total=0,.*connection broken by '(\w+)|(problem confirming the ssl certificate)")


def main(argv: Sequence[str] | None = None) -> int:
    """Install, and print the packages that were added and changed. Returns the exit code."""
    parser = Parser(
        prog="python -m workflow.install",
        description="Install the study into this Python, beside the packages that it has",
        examples=["python -m workflow.install", "python -m workflow.install gpu"],
    )
    parser.add_argument("extras", nargs="*", help="extras in pyproject.toml, such as gpu")
    extras = parser.parse_args(argv).extras
    if util.find_spec("pip") is None:
        raise StudyError(f"{sys.executable} has no pip: python3 -m ensurepip, or apt-get install python3-pip")
    before = installed_versions()
    if outdated := unsuitable(requirements(extras), before):
        print("too old for the study: " + ", ".join(f"{name} {before[name]}" for name in outdated), flush=True)
    kept = {name: version for name, version in before.items() if name not in {*outdated, NAME}}
    repair(before)
    write_json(BEFORE, before)
    install(f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT), kept, pinned_versions())
    BEFORE.unlink()
    print(changes(before, installed_versions()))
    return 0


def requirements(extras: Sequence[str]) -> list[str]:
    """Return the study's requirements with these extras. Raises StudyError for an extra that does not exist."""
    project: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    choices = project["optional-dependencies"]
    if unknown := sorted({*extras} - {*choices}):
        raise StudyError(f"no extra {unknown[0]!r}. Extras: {', '.join(sorted(choices))}")
    return [*project["dependencies"], *(text for name in extras for text in choices[name])]


def installed_versions() -> dict[str, str]:
    """Return the version of each installed package, by normal name."""
    entries = [(entry.metadata["Name"], entry.version) for entry in metadata.distributions()]
    # Of two folders with a package, Python imports it from the first.
    return {normal_name(name): version for name, version in reversed(entries) if name and version}


def unsuitable(texts: Iterable[str], versions: Mapping[str, str]) -> list[str]:
    """Return the names of the installed packages that these requirements refuse."""
    # pip has no public interface, but every pip brings this library.
    from pip._vendor.packaging.requirements import Requirement

    needed = {normal_name(entry.name): entry.specifier for entry in map(Requirement, texts)}
    return [name for name, range_ in needed.items() if name in versions and not range_.contains(versions[name], True)]


def pinned_versions() -> dict[str, str]:
    """Return the versions in constraints.txt, by normal name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {normal_name(name): version for name, version in pairs}


def install(target: str, kept: Mapping[str, str], pins: Mapping[str, str]) -> None:
    """Install `target` beside the versions in `kept`, if possible with the versions in `pins` for packages that lack.

    pip itself changes installed packages only where a new one excludes their version; those in CORE it may not change.
    Raises StudyError with pip's reason.
    """
    core = {name: version for name, version in kept.items() if CORE.fullmatch(name)}
    for versions in ({name: version for name, version in pins.items() if name not in kept} | core, core):
        done = run_pip(target, versions)
        if done.returncode == 0:
            return
        if OFFLINE.search(done.stderr) or not CONFLICT.search(done.stderr):
            break
    raise StudyError(f"pip could not install the study: {reason(done.stderr)}")


def repair(versions: Mapping[str, str]) -> None:
    """Install again the packages that an install added before it was cut off, since pip takes half a package for whole.

    versions: of the installed packages. Raises StudyError with pip's reason.
    """
    try:
        earlier = read_json(BEFORE)
    except StudyError:
        return
    # pip may not have changed packages in CORE, and an index has no local versions such as 2.11.0+cu128.
    added = [
        f"{name}=={version.partition('+')[0]}"
        for name, version in versions.items()
        if earlier.get(name) != version and name != NAME and not (name in earlier and CORE.fullmatch(name))
    ]
    if added:
        print(f"an install did not finish: {len(added)} packages are installed again", flush=True)
        done = pip_install("--ignore-installed", "--no-deps", *added)
        if done.returncode:
            raise StudyError(
                f"pip could not repair an install that was cut off: {reason(done.stderr)}: give the command again, "
                f"or go on without a repair: rm {BEFORE}"
            )


def run_pip(target: str, versions: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run pip on `target` in editable form, with these versions as constraints."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        # Versions in another scheme than Python's, such as Debian's, cannot be constraints.
        lines = (f"{name}=={version}" for name, version in versions.items() if re.match(r"\d[\w.+!-]*$", version))
        constraints.write_text("\n".join(lines), encoding="utf-8")
        return pip_install("--constraint", str(constraints), "--editable", target)


def pip_install(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `pip install` with these arguments and one line of progress, and keep its messages."""
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *words]
    code, lines = follow_pip(command, Progress(sys.stdout))
    return subprocess.CompletedProcess(command, code, stderr="\n".join(lines))


def reason(refusal: str) -> str:
    """Return the line in pip's messages with the reason of its failure."""
    if "externally-managed" in refusal:
        return "this Python is the system's: first python3 -m venv --system-site-packages .venv && . .venv/bin/activate"
    if failure := OFFLINE.search(refusal):
        words = next(filter(None, failure.groups()))
        return f"no packages could be downloaded ({words}): check the network and its proxy (HTTPS_PROXY)"
    lines = [line.strip() for line in refusal.splitlines()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.lower().startswith("error: ")]
    return (errors or [line for line in lines if line] or ["pip gave no reason"])[0]


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Describe the difference between two sets of installed versions."""
    changed = [f"{name} {before[name]} -> {after[name]}" for name in before if after.get(name, "") != before[name]]
    return f"added {len(after.keys() - before.keys())} packages; changed: {', '.join(changed) or 'none'}"


if __name__ == "__main__":
    sys.exit(run_command(main))
