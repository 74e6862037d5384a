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
        # Round 1 of every experiment comes before round 2 of any.
        earlier=lambda wildcards: (
            ancient(
                f"{RESULTS}/nodes/{wildcards.node}/.round.{int(wildcards.round) - 1}"
            )
            if int(wildcards.round) > 1
            else []
        ),
    output:
        f"{RESULTS}/nodes/{{node}}/{{experiment}}.{{device}}.{{round}}.parquet",
    log:
        f"{RESULTS}/logs/{{node}}/{{experiment}}.{{device}}.{{round}}.log",
    priority: first_jobs_first
    conda:
        "../envs/study.yaml"
    threads: workflow.cores
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
        "--seed {params.seed} --out {output:q} 2> {log:q}"


# ancient: a copy of the results may give files other times. Were this to be done again for them, Snakemake would do it
# alone, and end well with later rounds not measured.
rule finish_round:
    input:
        lambda wildcards: ancient(jobs(wildcards.round)),
    output:
        touch(f"{RESULTS}/nodes/{{node}}/.round.{{round}}"),
    log:
        f"{RESULTS}/logs/{{node}}/round.{{round}}.log",
    conda:
        "../envs/study.yaml"
    shell:
        "echo {input:q} > {log:q}"


rule seal:
    input:
        node=ancient(f"{RESULTS}/node.json"),
        plan=ancient(f"{RESULTS}/plan.json"),
        rounds=lambda wildcards: [file for round in rounds() for file in jobs(round)],
        last=lambda wildcards: f"{RESULTS}/nodes/{wildcards.node}/.round.{rounds()[-1]}",
    output:
        f"{RESULTS}/nodes/{{node}}/node.json",
    log:
        f"{RESULTS}/logs/{{node}}/seal.log",
    conda:
        "../envs/study.yaml"
    shell:
        "python -m experiments seal --probe {input.node:q} --plan {input.plan:q} "
        "--rounds {input.rounds:q} --out {output:q} 2> {log:q}"


# All that a machine has to do which others make the report of.
rule measured:
    input:
        lambda wildcards: f"{RESULTS}/nodes/{this_node()['id']}/node.json",
