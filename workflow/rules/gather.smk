# Tidy tables of every node: this one, and those published with the study.


rule gather:
    input:
        this=lambda wildcards: f"{RESULTS}/nodes/{this_node()['id']}/node.json",
        published=published(),
        code=code("*.py", "data/*.py", "publish/*.py"),
    output:
        samples=f"{RESULTS}/data/samples.parquet",
        samples_csv=f"{RESULTS}/data/samples.csv",
        summary=f"{RESULTS}/data/summary.parquet",
        summary_csv=f"{RESULTS}/data/summary.csv",
        dictionary=f"{RESULTS}/data/dictionary.csv",
        nodes=f"{RESULTS}/data/nodes.json",
        refused=f"{RESULTS}/data/refused.json",
        package=f"{RESULTS}/data/datapackage.json",
    log:
        f"{RESULTS}/logs/gather.log",
    conda:
        "../envs/study.yaml"
    params:
        # The first of two nodes of one name keeps it.
        nodes=[config["published"], f"{RESULTS}/nodes"],
        out=subpath(output.samples, parent=True),
    shell:
        "python -m report gather --nodes {params.nodes:q} --out {params.out:q} 2> {log:q}"
