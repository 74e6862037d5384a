# Add verdicts, data and editions to make the report a site for any static host.


rule site:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        table=f"{RESULTS}/verdicts.csv",
        samples=f"{RESULTS}/data/samples.parquet",
        summary=f"{RESULTS}/data/summary.parquet",
        html=f"{RESULTS}/report/index.html",
        pdf=f"{RESULTS}/report/report.pdf",
        previous=config["previous"] or [],
        code=code_files(
            "pages/downloads.py", "pages/data_tables.py", "pages/editions/*.py"
        ),
    output:
        verdicts=f"{RESULTS}/report/verdicts.json",
        table=f"{RESULTS}/report/verdicts.csv",
        summary=f"{RESULTS}/report/data/summary.csv",
        editions=f"{RESULTS}/report/editions.json",
    log:
        f"{RESULTS}/logs/site.log",
    localrule: True
    params:
        data=subpath(input.summary, parent=True),
        report=subpath(input.html, parent=True),
        previous=["--previous", config["previous"]] if config["previous"] else [],
    shell:
        "python -m report site --verdicts {input.verdicts:q} --data {params.data:q} --report {params.report:q} "
        "{params.previous:q} 2> {log:q}"
