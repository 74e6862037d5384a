# Make a preliminary page after round 1 of the first stage. Only the default target requests the page. If it fails, its
# log says so in one line, and the study goes on.


# The marker file means that the page was tried. It is not tried again, even after a failure.
rule preliminary:
    input:
        node=ancient(f"{RESULTS}/node.json"),
        # ancient: copying the results may change file times.
        rounds=lambda wildcards: ancient(round_files(1, True)),
    output:
        touch(f"{RESULTS}/nodes/{{node}}/.preliminary"),
    log:
        f"{RESULTS}/logs/{{node}}/preliminary.log",
    # Run before round 2, and never in parallel to a measurement.
    priority: 1000000
    threads: CORES
    resources:
        quiet=100,
    params:
        out=f"{RESULTS}/preliminary",
        nodes=lambda wildcards: f"{RESULTS}/preliminary/nodes/{wildcards.node}",
        published=PUBLISHED,
        total=lambda wildcards: rounds()[-1],
    shell:
        "( rm -rf {params.out:q} && mkdir -p {params.nodes:q} && cp {input.rounds:q} {params.nodes:q} && "
        "python -m experiments seal --probe {input.node:q} --rounds {input.rounds:q} --out {params.nodes:q}/node.json && "
        "python -m report preliminary --nodes {params.published:q} {params.out:q}/nodes --out {params.out:q} "
        "--rounds {params.total} ) 2> {log:q} || echo 'no preliminary page; the study goes on' >> {log:q}"
