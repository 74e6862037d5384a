# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Measure a GPU
#
# This notebook measures the GPU of its machine, and the CPU beside it, for the study "Does AI need a GPU?". On a free
# notebook it takes about an hour: five minutes to install, three to try everything, the rest to measure and to render
# a report. At the end you have the report's first page, five numbers of this machine, and one file to hand in.
#
# **Colab**: choose a GPU (Runtime, Change runtime type, T4 GPU), then Runtime, Run all. To open this notebook there
# from any copy of the study on GitHub, replace `github.com` by `colab.research.google.com/github` in its address.
# **Kaggle**: import this file, then choose a GPU, Internet, and Persistence of files in the settings. **Elsewhere**:
# run it in a checkout.
#
# If the machine is taken away, run all cells again on the next one. The measurements continue from the folder in
# `SAVE`, or, on Kaggle, from the files that it kept.

# %%
# Address of the study's repository; empty: where this notebook was opened from.
SOURCE = ""  # @param {type:"string"}
# Folder that outlives this machine, such as /content/drive/MyDrive/gpu-study; empty: none.
SAVE = ""  # @param {type:"string"}
# gpu: stop on a machine without a usable GPU. any: measure its CPU alone.
REQUIRE = "gpu"  # @param ["gpu", "any"]
# Points to measure, and minutes for them; 0: the preset's own.
PRESET = "rented"  # @param {type:"string"}
MINUTES = 0  # @param {type:"number"}

# %% [markdown]
# ## Get the study

# %%
import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path


class Stop(Exception):
    """End of the run for a reason that one line tells."""

    def _render_traceback_(self) -> list[str]:
        return [f"Stopped: {self}"]


def opened_from() -> str:
    """Return the address of the repository from which Colab opened this notebook, or ''."""
    try:
        address = f"http://{os.environ['COLAB_JUPYTER_IP']}:{os.environ['KMP_TARGET_PORT']}/api/sessions"
        with urllib.request.urlopen(address, timeout=10) as answer:
            place = urllib.parse.unquote(json.load(answer)[0]["path"])
    except (KeyError, IndexError, OSError, ValueError):
        return ""
    owner_and_name = place.partition("github.com/")[2].split("/")[:2]
    return "https://github.com/" + "/".join(owner_and_name) if len(owner_and_name) == 2 else ""


def run(*words: str, stops: bool = True) -> None:
    """Run a command of this Python in the study's folder, and show its output. Raises Stop if it fails."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "STUDY_CALLER_PID": str(os.getpid())}
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=STUDY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as process:  # fmt: skip
        last = ""
        for line in process.stdout or ():
            print(line, end="", flush=True)
            last = line.strip() or last
    if process.returncode and stops:
        raise Stop(last.removeprefix("error: ") or f"{' '.join(words[:2])}: exit code {process.returncode}")


STUDY = next((folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "Snakefile").is_file()), None)
if STUDY is None:
    STUDY = Path.cwd() / "does-ai-need-a-gpu"
    source = (SOURCE or opened_from()).rstrip("/").removesuffix(".git")
    if not (STUDY / "Snakefile").is_file():
        if not source:
            raise Stop("the study's address is unknown: set SOURCE to its repository's address, and run all again")
        shutil.rmtree(STUDY, ignore_errors=True)
        part = folder = STUDY.with_name("study.part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            if shutil.which("git"):
                words = ["git", "clone", "--quiet", "--depth", "1", source, str(part)]
                cloned = subprocess.run(words, capture_output=True, text=True)
                if cloned.returncode:
                    raise Stop(f"git clone {source}: {(cloned.stderr.strip() or 'failed').splitlines()[-1]}")
            else:
                archive, _ = urllib.request.urlretrieve(f"{source}/archive/HEAD.tar.gz")
                shutil.unpack_archive(archive, part, "gztar")
                (folder,) = part.iterdir()
        except (OSError, EOFError, ValueError, tarfile.TarError) as failure:
            raise Stop(f"{source} cannot be read: {failure}: check the address, the network and its proxy") from None
        folder.rename(STUDY)
        shutil.rmtree(part, ignore_errors=True)
print(STUDY)

# %% [markdown]
# ## Install what is missing
#
# This machine's own torch, NumPy and CuPy stay as they are.

# %%
if shutil.disk_usage(STUDY).free < 5e9:
    raise Stop(f"{STUDY}: less than 5 GB are free: delete something, or take a machine with a larger disk")
run("workflow.install", "gpu")
run("experiments", "probe", "--require", REQUIRE.replace("any", "cpu"), "--id")

# %% [markdown]
# ## Try one point of every kind
#
# Lines in capitals need a look, and `docs/gpu.md` explains them; measuring goes on all the same.

# %%
run("experiments", "preflight", "--preset", PRESET, "--minutes", "3", stops=False)

# %% [markdown]
# ## Measure
#
# Each line is one experiment. After an interruption, run all cells again.

# %%
if SAVE.startswith("/content/drive/"):
    from google.colab import drive

    drive.mount("/content/drive")
settings = [f"preset={PRESET}", f"require={REQUIRE}", f"budget_min={MINUTES:g}"]
run(*(["workflow.saved_run", SAVE] if SAVE else ["snakemake", "--cores", "all"]), "--config", *settings)

# %% [markdown]
# ## Five numbers of this machine, and the report's first page

# %%
run("report", "numbers")

# %%
import html

from IPython.display import FileLink, display

run("report", "embed", "--out", "results/first-page.html")
page = (STUDY / "results/first-page.html").read_text(encoding="utf-8")
display({"text/html": f'<iframe srcdoc="{html.escape(page)}" width="100%" height="800"></iframe>'}, raw=True)

# %% [markdown]
# ## The file to hand in
#
# The pack has the measurements, the names of processor, GPU and software, and the times of the run: no names of people
# or hosts, no addresses, no serial numbers. Attach it to the form "Hand in a node" among the issues of the study's
# repository. It is published under CC BY 4.0 (`data/LICENSE`).

# %%
run("experiments", "pack")
packs = sorted((STUDY / "results").glob("*.zip"), key=lambda path: path.stat().st_mtime)
if "google.colab" in sys.modules:
    from google.colab import files

    files.download(str(packs[-1]))
display(FileLink(os.path.relpath(packs[-1])))
