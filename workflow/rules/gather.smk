# Tidy tables of every node: this one, and those published with the study. This and all that follows runs where the
# command was given, and is no scheduler's job (localrule).


rule gather:
    input:
        measured=sealed,
        published=files(PUBLISHED, "*/*.json", "*/*.parquet"),
        code=code("*.py", "data/*.py", "publish/*.py"),
    output:
        samples=f"{RESULTS}/data/samples.parquet",
        samples_csv=f"{RESULTS}/data/samples.csv",
        summary=f"{RESULTS}/data/summary.parquet",
        summary_csv=report(
            f"{RESULTS}/data/summary.csv",
            caption="../report/summary.rst",
            category="Measurements",
            labels={"file": "summary, one row a point"},
        ),
        dictionary=f"{RESULTS}/data/dictionary.csv",
        nodes=f"{RESULTS}/data/nodes.json",
        refused=f"{RESULTS}/data/refused.json",
        package=f"{RESULTS}/data/datapackage.json",
    log:
        f"{RESULTS}/logs/gather.log",
    localrule: True
    params:
        # The first of two nodes of one name keeps it.
        nodes=[PUBLISHED, *OWN_NODES],
        out=subpath(output.samples, parent=True),
    shell:
        "python -m report gather --nodes {params.nodes:q} --out {params.out:q} 2> {log:q}"
