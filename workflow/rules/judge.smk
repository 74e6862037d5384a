# Judge every claim by the rule in its file.


rule judge:
    input:
        samples=f"{RESULTS}/data/samples.parquet",
        points=f"{RESULTS}/data/points.parquet",
        runs=f"{RESULTS}/data/runs.parquet",
        results=f"{RESULTS}/data/results.parquet",
        nodes=f"{RESULTS}/data/nodes.json",
        refused=f"{RESULTS}/data/refused.json",
        claims=code_files("claims/*.yaml"),
        reference=match_files(HOME / "data/reference", "*.yaml"),
        published=match_files(HOME / "data/published", "*.csv", "*.yaml"),
        names=match_files(HOME / "data/names", "*.csv"),
        code=code_files(
            "*.py",
            "data/*.py",
            "dataset/*.py",
            "quantities/*.py",
            "judging/*.py",
            "publish/*.py",
            "*.yaml",
        ),
    output:
        json=f"{RESULTS}/verdicts.json",
        csv=report(
            f"{RESULTS}/verdicts.csv",
            caption="../report/verdicts.rst",
            category="Verdicts",
            labels={"file": "verdicts, one row a claim"},
        ),
    log:
        f"{RESULTS}/logs/judge.log",
    localrule: True
    params:
        data=subpath(input.results, parent=True),
    shell:
        "python -m report judge --data {params.data:q} --out {output.json:q} 2> {log:q}"
