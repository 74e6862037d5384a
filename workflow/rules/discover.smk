# What this machine is, and what is measured on it within the time that there is: decided before, and told.


# One checkpoint for both: of two in a chain, a job that asks the first is not asked again after the second, so that a
# run which was stopped between them could never go on.
checkpoint discover:
    output:
        # Not removed before it is written again: a machine keeps its name.
        node=update(f"{RESULTS}/node.json"),
        plan=f"{RESULTS}/plan.json",
    log:
        probe=f"{RESULTS}/logs/discover.log",
        plan=f"{RESULTS}/logs/plan.log",
    params:
        # Whole paths name people and machines.
        preset=Path(config["preset"]).name,
        seed=config["seed"],
        words=PLAN_WORDS,
        sweeps=PRESET["digest"],
        protocol=PROTOCOL,
    shell:
        "python -m experiments probe --option preset={params.preset:q} --option seed={params.seed} "
        "--out {output.node:q} 2> {log.probe:q} && "
        "python -m experiments plan {params.words:q} --time-start --node {output.node:q} --out {output.plan:q} 2> {log.plan:q}"
