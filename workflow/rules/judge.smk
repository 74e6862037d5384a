# Every claim's verdict, by the rule that its file declares.


rule judge:
    input:
        summary=f"{RESULTS}/data/summary.parquet",
        claims=sorted(str(path) for path in Path("report/claims").glob("*.yaml")),
        reference=sorted(str(path) for path in Path("data/reference").glob("*.yaml")),
        code=code("*.py", "quantities/*.py"),
    output:
        json=f"{RESULTS}/verdicts.json",
        csv=f"{RESULTS}/verdicts.csv",
    log:
        f"{RESULTS}/logs/judge.log",
    conda:
        "../envs/study.yaml"
    params:
        nodes=[f"{RESULTS}/nodes", config["published"]],
    shell:
        "python -m report judge --nodes {params.nodes} --out {output.json} 2> {log}"
