# Measure in one process per experiment, device and round. A job takes all cores, so that nothing else runs in parallel.
# Executors for other computers go by the resource `quiet` instead.


wildcard_constraints:
    node="[a-z0-9._-]+",
    experiment="[a-z0-9_-]+",
    device="[a-z]+(-[0-9]+)?",
    round="[0-9]+",


rule measure:
    input:
        # ancient: a new description of the node is no reason to measure again.
        node=ancient(f"{RESULTS}/node.json"),
        plan=ancient(f"{RESULTS}/plan.json"),
        further=lambda wildcards: ancient(stages_of_round(wildcards.round)),
    output:
        f"{RESULTS}/nodes/{{node}}/{{experiment}}.{{device}}.{{round}}.parquet",
    log:
        f"{RESULTS}/logs/{{node}}/{{experiment}}.{{device}}.{{round}}.log",
    # The priority makes jobs follow the plan's order. Unlike a dependency, it lets jobs run after one has failed.
    priority: job_priority
    threads: CORES
    resources:
        quiet=100,
    params:
        # When an experiment's protocol changes, it is measured again.
        protocol=lambda wildcards: planned_job(wildcards).protocol,
        seed=config["seed"],
        planned=planned_digest,
        device=lambda wildcards: wildcards.device.replace("-", ":"),
    shell:
        "python -m experiments run {wildcards.experiment:q} --device {params.device:q} "
        "--round {wildcards.round:q} --node {input.node:q} --plan {input.plan:q} --further {input.further:q} "
        "--seed {params.seed} --out {output:q} 2> {log:q}"


# Measure again the points that others disturbed, now that the disturbance may have ended; then write the node's record.
# Further attempts are files beside the rounds, unknown before measuring, so that they are no outputs of a rule.
rule seal:
    input:
        node=ancient(f"{RESULTS}/node.json"),
        plan=ancient(f"{RESULTS}/plan.json"),
        further=lambda wildcards: ancient(further_files()),
        rounds=all_round_files,
    output:
        f"{RESULTS}/nodes/{{node}}/node.json",
    log:
        f"{RESULTS}/logs/{{node}}/seal.log",
    threads: CORES
    resources:
        quiet=100,
    params:
        folder=subpath(output[0], parent=True),
        share=config["repeat_share"],
        seed=config["seed"],
    shell:
        "python -m experiments repeat --node {input.node:q} --plan {input.plan:q} --further {input.further:q} "
        "--folder {params.folder:q} --share {params.share} --seed {params.seed} 2> {log:q} && "
        "python -m experiments seal --probe {input.node:q} --plan {input.plan:q} --further {input.further:q} "
        "--rounds {input.rounds:q} --out {output:q} 2>> {log:q}"


# Target for a machine whose report is made elsewhere.
rule measured:
    input:
        sealed_records,
