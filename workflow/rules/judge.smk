# Every claim's verdict, by the rule that its file declares.


rule judge:
    input:
        samples=f"{RESULTS}/data/samples.parquet",
        summary=f"{RESULTS}/data/summary.parquet",
        nodes=f"{RESULTS}/data/nodes.json",
        refused=f"{RESULTS}/data/refused.json",
        claims=sorted(str(path) for path in Path("report/claims").glob("*.yaml")),
        reference=sorted(str(path) for path in Path("data/reference").glob("*.yaml")),
        published=sorted(
            str(path)
            for pattern in ("*.csv", "*.yaml")
            for path in Path("data/published").glob(pattern)
        ),
        code=code(
            "*.py",
            "data/*.py",
            "quantities/*.py",
            "judging/*.py",
            "publish/*.py",
            "*.yaml",
        ),
    output:
        json=f"{RESULTS}/verdicts.json",
        csv=f"{RESULTS}/verdicts.csv",
        parquet=f"{RESULTS}/verdicts.parquet",
        cells=f"{RESULTS}/verdict_cells.parquet",
    log:
        f"{RESULTS}/logs/judge.log",
    conda:
        "../envs/study.yaml"
    params:
        data=subpath(input.summary, parent=True),
    shell:
        "python -m report judge --data {params.data:q} --out {output.json:q} 2> {log:q}"
