# Every number of the report has a source, a unit and an interval. What lacks one is told and kept in lint.txt, and does
# not cost the study: where load left a point a single round, there is no interval to show. `report lint` itself fails.


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
        "python -m report lint --verdicts {input.verdicts:q} --data {params.data:q} --report {params.report:q} "
        "> {output:q} 2> {log:q} || test -s {output:q}; test -s {log:q} || cp {output:q} {log:q}"
