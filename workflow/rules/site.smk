# Add verdicts, the dataset and editions to make the report a site for any static host.


rule site:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        table=f"{RESULTS}/verdicts.csv",
        dataset=f"{RESULTS}/dataset/datapackage.json",
        html=f"{RESULTS}/report/index.html",
        pdf=f"{RESULTS}/report/report.pdf",
        previous=config["previous"] or [],
        code=code_files("pages/downloads.py", "pages/editions/*.py"),
    output:
        verdicts=f"{RESULTS}/report/verdicts.json",
        table=f"{RESULTS}/report/verdicts.csv",
        results=f"{RESULTS}/report/data/results.csv",
        editions=f"{RESULTS}/report/editions.json",
    log:
        f"{RESULTS}/logs/site.log",
    localrule: True
    params:
        dataset=subpath(input.dataset, parent=True),
        report=subpath(input.html, parent=True),
        previous=["--previous", config["previous"]] if config["previous"] else [],
    shell:
        "python -m report site --verdicts {input.verdicts:q} --dataset {params.dataset:q} --report {params.report:q} "
        "{params.previous:q} 2> {log:q}"
