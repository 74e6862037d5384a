# Make tidy tables from this node and the published ones. This and all later rules run on the local machine, never as
# scheduler jobs (localrule).


rule gather:
    input:
        measured=sealed_records,
        published=match_files(PUBLISHED, "*/*.json", "*/*.parquet"),
        code=code_files("*.py", "data/*.py", "publish/*.py"),
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
        # On duplicate names, the first node wins.
        nodes=[PUBLISHED, *OWN_NODES],
        out=subpath(output.samples, parent=True),
    shell:
        "python -m report gather --nodes {params.nodes:q} --out {params.out:q} 2> {log:q}"
