# Make tidy tables from this node and the published ones. This and all later rules run on the local machine, never as
# scheduler jobs (localrule).


rule gather:
    input:
        measured=sealed_records,
        published=match_files(PUBLISHED, "*/*.json", "*/*.parquet"),
        names=match_files(HOME / "data/names", "*.csv"),
        dictionary=str(HOME / "contract/dictionary.yaml"),
        code=code_files("*.py", "data/*.py", "dataset/*"),
    output:
        samples=f"{RESULTS}/data/samples.parquet",
        results=f"{RESULTS}/data/results.parquet",
        results_csv=report(
            f"{RESULTS}/data/results.csv",
            caption="../report/results.rst",
            category="Measurements",
            labels={"file": "results, one row a point and metric"},
        ),
        flags=f"{RESULTS}/data/result_flags.parquet",
        points=f"{RESULTS}/data/points.parquet",
        runs=f"{RESULTS}/data/runs.parquet",
        machines=f"{RESULTS}/data/machines.parquet",
        software=f"{RESULTS}/data/software.parquet",
        metrics=f"{RESULTS}/data/metrics.parquet",
        parameters=f"{RESULTS}/data/parameters.parquet",
        nodes=f"{RESULTS}/data/nodes.json",
        refused=f"{RESULTS}/data/refused.json",
    log:
        f"{RESULTS}/logs/gather.log",
    localrule: True
    params:
        # On duplicate names, the first node wins.
        nodes=[PUBLISHED, *OWN_NODES],
        out=subpath(output.samples, parent=True),
    shell:
        "python -m report gather --nodes {params.nodes:q} --out {params.out:q} 2> {log:q}"
