# Measure the machines in the setting `machines`. Each machine is one job, which runs this workflow without the report:
# on this machine, on another computer by Snakemake's executor, or by ssh. Gathering and judging run here.


wildcard_constraints:
    machine="[a-z0-9][a-z0-9_-]*",


# Snakemake empties a job's log on each try. A second log, beside the results, keeps the output from all tries.
rule machine:
    input:
        asked=MACHINES.file("{machine}", "asked"),
        preset=lambda wildcards: MACHINES.preset_files(wildcards.machine),
    output:
        MACHINES.file("{machine}", "ended"),
    log:
        f"{RESULTS}/logs/machines/{{machine}}.log",
    wildcard_constraints:
        machine=MACHINES.name_pattern(ssh=False),
    retries: TRIES
    threads: lambda wildcards, attempt: MACHINES.cores(wildcards.machine, attempt, CORES)
    resources:
        **MACHINES.resources(),
        attempt=lambda wildcards, attempt: attempt,
        runtime=lambda wildcards: MACHINES.runtime_min(wildcards.machine),
    params:
        folder=subpath(output[0], parent=True),
        snakefile=str(HOME.resolve() / "Snakefile"),
        words=lambda wildcards: MACHINES.config_words(wildcards.machine),
        tries=TRIES,
    shell:
        GIVE_UP
        + "STUDY_CALLER_PID=$STUDY_COORDINATOR_PID snakemake --snakefile {params.snakefile:q} "
        "--directory {params.folder:q} --cores all --config {params.words:q} -- measured "
        "2>&1 | tee -a {params.folder:q}/log > {log:q} && echo measured > {output:q}"


rule machine_by_ssh:
    input:
        asked=MACHINES.file("{machine}", "asked"),
        preset=lambda wildcards: MACHINES.preset_files(wildcards.machine),
    output:
        MACHINES.file("{machine}", "ended"),
    log:
        f"{RESULTS}/logs/machines/{{machine}}.log",
    wildcard_constraints:
        machine=MACHINES.name_pattern(ssh=True),
    retries: TRIES
    localrule: True
    resources:
        attempt=lambda wildcards, attempt: attempt,
    params:
        host=lambda wildcards: MACHINES.setting(wildcards.machine, "ssh"),
        python=lambda wildcards: MACHINES.setting(
            wildcards.machine, "python", "python3"
        ),
        there=lambda wildcards: MACHINES.setting(wildcards.machine, "folder", ""),
        folder=subpath(output[0], parent=True),
        script=str(HOME / "workflow" / "measure-over-ssh.sh"),
        words=lambda wildcards: MACHINES.config_words(wildcards.machine, "preset.yaml"),
        tries=TRIES,
    shell:
        GIVE_UP
        + "PRESET={input.preset:q} FOLDER={params.there:q} PYTHON={params.python:q} bash {params.script:q} "
        "{params.host:q} {params.folder:q} --config {params.words:q} "
        "2>&1 | tee -a {params.folder:q}/log > {log:q} && echo measured > {output:q}"
