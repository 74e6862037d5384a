# The machines that `machines:` names. Each is one job, which runs this workflow there and stops before the report:
# on this machine, on another computer by Snakemake's executor, or by ssh. What gathers and judges runs here.

MACHINES = {
    machine: about or {} for machine, about in (config["machines"] or {}).items()
}
BY_SSH = [machine for machine, about in MACHINES.items() if "ssh" in about]
# A job that ended by whatever cause is tried again, and goes on; after these it gives up, so that the others' report is
# made. The same command tries it again.
TRIES = 2


wildcard_constraints:
    machine="[a-z0-9][a-z0-9_-]*",


def of_machine(wildcards):
    """What is set for one machine, with what is set for all in the place of what is not."""
    everyone = {name: config[name] for name in ("preset", "budget_min", "require")}
    return {**everyone, **MACHINES[wildcards.machine]}


def machine_words(wildcards, preset=None):
    """The settings of the workflow that runs on a machine, which measures itself. preset: where its file lies there."""
    about = of_machine(wildcards)
    words = {name: about[name] for name in ("preset", "budget_min", "require")}
    if own := own_preset(wildcards):
        words["preset"] = preset or str(Path(own[0]).resolve())
    words |= {
        "seed": config["seed"],
        "results": "results",
        "published": "",
        "previous": "",
    }
    # What a head that was killed has left at work there comes to its end first.
    words |= {"machines": "", "wait": True}
    return [f"{name}={value}" for name, value in words.items()]


def own_preset(wildcards):
    """The file of a machine's preset, where that is none of the study's."""
    preset = of_machine(wildcards)["preset"]
    return [preset] if preset.endswith((".yaml", ".yml")) else []


def cores(wildcards, attempt):
    """Those that a scheduler is asked for; a job that only gives up needs no more than one."""
    return MACHINES[wildcards.machine].get("cores", CORES) if attempt <= TRIES else 1


def minutes(wildcards):
    """How long a scheduler lets a machine's job run: its budget, with room for starting and for what takes longer."""
    about = of_machine(wildcards)
    granted = about["budget_min"] or checked_preset(about["preset"])["budget_min"]
    return about.get("resources", {}).get("runtime", math.ceil(1.5 * granted + 15))


def resource(name):
    """A resource of the jobs that the machines' settings name, where they do."""
    return lambda wildcards: MACHINES[wildcards.machine].get("resources", {}).get(name)


RESOURCES = {
    name: resource(name)
    for about in MACHINES.values()
    for name in about.get("resources", {})
    if name != "runtime"
}


def ended(machine):
    return f"{RESULTS}/machines/{machine}/ended"


def not_measured():
    """The machines whose jobs gave up, each with its last words."""
    files = {machine: Path(ended(machine)) for machine in MACHINES}
    said = {
        machine: file.read_text() for machine, file in files.items() if file.exists()
    }
    return {
        machine: words.removeprefix("failed: ").strip()
        for machine, words in said.items()
        if words.startswith("failed: ")
    }


# What a job says after its tries: its last error, or last words.
GIVE_UP = (
    "if [ {resources.attempt} -gt {params.tries} ]; then "
    "echo failed: $({{ grep -o 'error: .*' {params.folder:q}/log || cat {params.folder:q}/log; }} | tail -n 1) > {output:q}; "
    "exit; fi; "
)


def asked(machine):
    """A file that is older than a machine's `ended`, unless that says that it could not be measured."""
    return f"{RESULTS}/machines/{machine}/asked"


if workflow.is_main_process:
    for machine in MACHINES:
        if machine in not_measured() or not Path(asked(machine)).exists():
            Path(asked(machine)).parent.mkdir(parents=True, exist_ok=True)
            # Times differ, and so do digests, by one of which Snakemake goes.
            Path(asked(machine)).write_text(f"{time.time_ns()}\n")


# `ended` says measured, or why not. Snakemake begins its log anew with each try: that beside the results has all of them.
rule machine:
    input:
        asked=asked("{machine}"),
        preset=own_preset,
    output:
        ended("{machine}"),
    log:
        f"{RESULTS}/logs/machines/{{machine}}.log",
    wildcard_constraints:
        machine="|".join(name for name in MACHINES if name not in BY_SSH) or "(?!)",
    retries: TRIES
    threads: cores
    resources:
        **RESOURCES,
        attempt=lambda wildcards, attempt: attempt,
        runtime=minutes,
    params:
        folder=subpath(output[0], parent=True),
        snakefile=str(HOME.resolve() / "Snakefile"),
        words=machine_words,
        tries=TRIES,
    shell:
        GIVE_UP
        + "STUDY_CALLER_PID=$STUDY_COORDINATOR_PID snakemake --snakefile {params.snakefile:q} "
        "--directory {params.folder:q} --cores all --config {params.words:q} -- measured "
        "2>&1 | tee -a {params.folder:q}/log > {log:q} && echo measured > {output:q}"


rule machine_by_ssh:
    input:
        asked=asked("{machine}"),
        preset=own_preset,
    output:
        ended("{machine}"),
    log:
        f"{RESULTS}/logs/machines/{{machine}}.log",
    wildcard_constraints:
        machine="|".join(BY_SSH) or "(?!)",
    retries: TRIES
    localrule: True
    resources:
        attempt=lambda wildcards, attempt: attempt,
    params:
        host=lambda wildcards: MACHINES[wildcards.machine]["ssh"],
        python=lambda wildcards: MACHINES[wildcards.machine].get("python", "python3"),
        there=lambda wildcards: MACHINES[wildcards.machine].get("folder", ""),
        folder=subpath(output[0], parent=True),
        script=str(HOME / "workflow" / "measure-over-ssh.sh"),
        words=lambda wildcards: machine_words(wildcards, "preset.yaml"),
        tries=TRIES,
    shell:
        GIVE_UP
        + "PRESET={input.preset:q} FOLDER={params.there:q} PYTHON={params.python:q} bash {params.script:q} "
        "{params.host:q} {params.folder:q} --config {params.words:q} "
        "2>&1 | tee -a {params.folder:q}/log > {log:q} && echo measured > {output:q}"
