# Every number of the report has a source, a unit and an interval: a study whose report lacks one fails.


rule lint:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        summary=f"{RESULTS}/data/summary.parquet",
        html=f"{RESULTS}/report/index.html",
        source=f"{RESULTS}/report/index.qmd",
        reference=sorted(str(path) for path in Path("data/reference").glob("*.yaml")),
        code=code("lint/*.py"),
    output:
        f"{RESULTS}/lint.txt",
    log:
        f"{RESULTS}/logs/lint.log",
    conda:
        "../envs/study.yaml"
    params:
        data=subpath(input.summary, parent=True),
        report=subpath(input.html, parent=True),
    shell:
        "python -m report lint --verdicts {input.verdicts} --data {params.data} --report {params.report} "
        "2> {log} | tee {output} >&2"
