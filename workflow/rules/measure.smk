# One process per experiment, device and round. All cores are asked for, so that nothing
# else runs meanwhile, with or without a profile; other computers' schedulers see `quiet`.


wildcard_constraints:
    node="[a-z0-9._-]+",
    experiment="[a-z0-9_-]+",
    device="[a-z]+(-[0-9]+)?",
    round="[0-9]+",


rule measure:
    input:
        # ancient: a node that is described again is not another node.
        node=ancient(f"{RESULTS}/node.json"),
        plan=ancient(f"{RESULTS}/plan.json"),
    output:
        f"{RESULTS}/nodes/{{node}}/{{experiment}}.{{device}}.{{round}}.parquet",
    log:
        f"{RESULTS}/logs/{{node}}/{{experiment}}.{{device}}.{{round}}.log",
    # Follows the order of the plan; one that fails does not hold up others.
    priority: turn
    threads: CORES
    resources:
        quiet=100,
    params:
        protocol=PROTOCOL,
        seed=config["seed"],
        planned=planned,
        device=lambda wildcards: wildcards.device.replace("-", ":"),
    shell:
        "python -m experiments run {wildcards.experiment:q} --device {params.device:q} "
        "--round {wildcards.round:q} --node {input.node:q} --plan {input.plan:q} "
        "--seed {params.seed} --protocol {params.protocol} --out {output:q} 2> {log:q}"


rule seal:
    input:
        node=ancient(f"{RESULTS}/node.json"),
        plan=ancient(f"{RESULTS}/plan.json"),
        rounds=all_jobs,
    output:
        f"{RESULTS}/nodes/{{node}}/node.json",
    log:
        f"{RESULTS}/logs/{{node}}/seal.log",
    shell:
        "python -m experiments seal --probe {input.node:q} --plan {input.plan:q} "
        "--rounds {input.rounds:q} --out {output:q} 2> {log:q}"


# All that a machine has to do which others make the report of.
rule measured:
    input:
        sealed,
