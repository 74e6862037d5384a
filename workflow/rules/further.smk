# Measure further: rounds before the next look for the points behind undecided claims, and a later session's anchors.
# Each checkpoint writes the points of its rounds. A stage that was begun stays as it is, also if settings change.


wildcard_constraints:
    number="[0-9]+",


# Judge the claims by the rounds so far, and choose the points to measure before the look after {number} rounds.
checkpoint look:
    input:
        # ancient: a stage that was begun is not chosen again.
        node=ancient(f"{RESULTS}/node.json"),
        plan=ancient(f"{RESULTS}/plan.json"),
        further=lambda wildcards: ancient(
            further_files(first_round(f"look-{wildcards.number}"))
        ),
        rounds=lambda wildcards: ancient(
            files_of_rounds(first_round(f"look-{wildcards.number}"))
        ),
    output:
        f"{RESULTS}/further/look-{{number}}.json",
    log:
        f"{RESULTS}/logs/look-{{number}}.log",
    threads: CORES
    resources:
        quiet=100,
    params:
        node=lambda wildcards: this_node()["id"],
        folder=lambda wildcards: f"{RESULTS}/nodes/{this_node()['id']}",
        out=f"{RESULTS}/further/before-look-{{number}}",
        published=PUBLISHED,
        share=config["repeat_share"],
        seed=config["seed"],
    # If the claims cannot be judged here, nothing is measured further, and the run goes on.
    shell:
        "( python -m experiments repeat --node {input.node:q} --plan {input.plan:q} --further {input.further:q} "
        "--folder {params.folder:q} --share {params.share} --seed {params.seed} && "
        "rm -rf {params.out:q} && mkdir -p {params.out:q}/nodes/{params.node:q} && "
        "python -m experiments seal --looks --probe {input.node:q} --plan {input.plan:q} --further {input.further:q} "
        "--rounds {input.rounds:q} --out {params.out:q}/nodes/{params.node:q}/node.json && "
        "cp {params.folder:q}/*.parquet {params.out:q}/nodes/{params.node:q} && "
        # This node first, so that it keeps its name beside an earlier run on this machine.
        "{{ python -m report gather --nodes {params.out:q}/nodes {params.published:q} --out {params.out:q}/data && "
        "python -m report judge --data {params.out:q}/data --out {params.out:q}/verdicts.json && "
        "python -m report undecided --verdicts {params.out:q}/verdicts.json --data {params.out:q}/data "
        "--node {params.node:q} --out {params.out:q}/cases.json || "
        "{{ echo 'warning: the claims cannot be judged here: no undecided case is measured further' >&2 && "
        "echo '{{\"cases\": []}}' > {params.out:q}/cases.json; }}; }} && "
        "python -m experiments further --plan {input.plan:q} --folder {params.folder:q} --look {wildcards.number:q} "
        # Not a parameter of the rule, whose change would choose again.
        f"--cases {{params.out:q}}/cases.json --minutes {config['until_decided'] or 1} --out {{output:q}} && "
        "rm -rf {params.out:q}/nodes {params.out:q}/data ) 2> {log:q}"


# Choose the anchors of a later session.
checkpoint session:
    input:
        node=ancient(f"{RESULTS}/node.json"),
        plan=ancient(f"{RESULTS}/plan.json"),
        rounds=lambda wildcards: ancient(
            files_of_rounds(first_round(f"session-{wildcards.number}"))
        ),
    output:
        f"{RESULTS}/further/session-{{number}}.json",
    log:
        f"{RESULTS}/logs/session-{{number}}.log",
    threads: CORES
    params:
        folder=lambda wildcards: f"{RESULTS}/nodes/{this_node()['id']}",
    shell:
        "python -m experiments further --plan {input.plan:q} --folder {params.folder:q} "
        "--session {wildcards.number:q} --out {output:q} 2> {log:q}"
