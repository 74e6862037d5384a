# Check that every number in the verdicts has a source, a unit and an interval, and that every page was made. Faults go
# to lint.txt and do not fail the study, since a point with a single round has no interval. The command `report lint`
# itself fails if there are faults.


rule lint:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        results=f"{RESULTS}/data/results.parquet",
        failures=f"{RESULTS}/report/failures.json",
        reference=match_files(HOME / "data/reference", "*.yaml"),
        code=code_files("commands/lint.py"),
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
        data=subpath(input.results, parent=True),
        report=subpath(input.failures, parent=True),
    shell:
        "python -m report lint --verdicts {input.verdicts:q} --data {params.data:q} --report {params.report:q} "
        "> {output:q} 2> {log:q} || test -s {output:q}; test -s {log:q} || cp {output:q} {log:q}"
