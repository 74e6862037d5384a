# Every number of the verdicts has a source, a unit and an interval. What lacks one is told and kept in lint.txt, and does
# not cost the study: where load left a point a single round, there is no interval to show. `report lint` itself fails.


rule lint:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        summary=f"{RESULTS}/data/summary.parquet",
        reference=files(HOME / "data/reference", "*.yaml"),
        code=code("commands/lint.py"),
    output:
        report(
            f"{RESULTS}/lint.txt",
            caption="../report/lint.rst",
            category="Verdicts",
            labels={"file": "faults that were looked for"},
        ),
    log:
        f"{RESULTS}/logs/lint.log",
    localrule: True
    params:
        data=subpath(input.summary, parent=True),
    shell:
        "python -m report lint --verdicts {input.verdicts:q} --data {params.data:q} "
        "> {output:q} 2> {log:q} || test -s {output:q}; test -s {log:q} || cp {output:q} {log:q}"
