# A first page after round 1 of the first stage, before the others are measured. Only the default target asks for it,
# and it costs the study nothing but its time: where it fails, its log says so in one line.


# Made and tried is the same here: the marker says that it need not be tried again.
rule preliminary:
    input:
        node=ancient(f"{RESULTS}/node.json"),
        # ancient: a copy of the results may give files other times, and the page was made all the same.
        rounds=lambda wildcards: ancient(jobs(1, True)),
    output:
        touch(f"{RESULTS}/nodes/{{node}}/.preliminary"),
    log:
        f"{RESULTS}/logs/{{node}}/preliminary.log",
    # Before any job of round 2, and never beside one.
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
