# Fit the adviser's constants to published outcomes and to this study's own results, held out by source.


rule calibrate_advice:
    input:
        outcomes=str(HOME / "data/published/jobs/outcomes.csv"),
        names=match_files(HOME / "data/reference/advice", "*.csv"),
        results=f"{RESULTS}/data/results.parquet",
        nodes=f"{RESULTS}/data/nodes.json",
        code=code_files("advice/*.py", "advice/*.yaml"),
    output:
        f"{RESULTS}/advice.json",
    log:
        f"{RESULTS}/logs/calibrate-advice.log",
    localrule: True
    params:
        data=subpath(input.results, parent=True),
    shell:
        "python -m report calibrate --data {params.data:q} --out {output:q} > {log:q} 2>&1"
