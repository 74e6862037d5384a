# What this machine is: the DAG expands over the devices that are found here.


checkpoint discover:
    output:
        # Not removed before it is written again: a machine keeps its name.
        update(f"{RESULTS}/node.json"),
    log:
        f"{RESULTS}/logs/discover.log",
    conda:
        "../envs/study.yaml"
    params:
        preset=config["preset"],
        seed=config["seed"],
    shell:
        "python -m experiments probe --option preset={params.preset} --option seed={params.seed} "
        "--out {output} 2> {log}"


# What is measured within the time that there is: decided before, and told.
checkpoint plan:
    input:
        f"{RESULTS}/node.json",
    output:
        f"{RESULTS}/plan.json",
    log:
        f"{RESULTS}/logs/plan.log",
    conda:
        "../envs/study.yaml"
    params:
        words=PLAN_WORDS,
        sweeps=SWEEPS["digests"],
    shell:
        "python -m experiments plan {params.words} --node {input} --out {output} "
        "2>&1 | tee {log} >&2"
