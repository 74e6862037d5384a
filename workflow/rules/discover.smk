# Describe this machine, and plan the measurements within the budget.


# One checkpoint does both. With two in a chain, Snakemake does not re-evaluate a job after the second, so that a run
# stopped between them could never resume.
checkpoint discover:
    output:
        # update() keeps the old file, since a machine keeps its name.
        node=update(f"{RESULTS}/node.json"),
        plan=f"{RESULTS}/plan.json",
    log:
        probe=f"{RESULTS}/logs/discover.log",
        plan=f"{RESULTS}/logs/plan.log",
    params:
        # Only the preset's file name is recorded, since paths contain user and machine names.
        preset=Path(config["preset"]).name,
        seed=config["seed"],
        words=PLAN_WORDS,
        sweeps=PRESET["digest"],
    shell:
        "python -m experiments probe --option preset={params.preset:q} --option seed={params.seed} "
        "--out {output.node:q} 2> {log.probe:q} && "
        "python -m experiments plan {params.words:q} --time-start --node {output.node:q} --out {output.plan:q} "
        # Not a parameter of the rule, whose change would make a new plan.
        f"--repeat-share {config['repeat_share']} 2> {{log.plan:q}}"
