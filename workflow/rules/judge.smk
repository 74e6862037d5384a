# Judge every claim by the rule in its file.


rule judge:
    input:
        samples=f"{RESULTS}/data/samples.parquet",
        summary=f"{RESULTS}/data/summary.parquet",
        nodes=f"{RESULTS}/data/nodes.json",
        refused=f"{RESULTS}/data/refused.json",
        claims=code_files("claims/*.yaml"),
        reference=match_files(HOME / "data/reference", "*.yaml"),
        published=match_files(HOME / "data/published", "*.csv", "*.yaml"),
        code=code_files(
            "*.py",
            "data/*.py",
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
        parquet=f"{RESULTS}/verdicts.parquet",
        cases=f"{RESULTS}/verdict_cases.parquet",
    log:
        f"{RESULTS}/logs/judge.log",
    localrule: True
    params:
        data=subpath(input.summary, parent=True),
    shell:
        "python -m report judge --data {params.data:q} --out {output.json:q} 2> {log:q}"
