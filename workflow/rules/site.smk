# What makes the report a site that any static host serves as it is: verdicts, data, editions, feed, picture.


rule site:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        table=f"{RESULTS}/verdicts.csv",
        samples=f"{RESULTS}/data/samples.parquet",
        summary=f"{RESULTS}/data/summary.parquet",
        html=f"{RESULTS}/report/index.html",
        pdf=f"{RESULTS}/report/report.pdf",
        previous=config["previous"] or [],
        code=code("site/*.py", "render/head.py", "render/figures.py"),
    output:
        verdicts=f"{RESULTS}/report/verdicts.json",
        table=f"{RESULTS}/report/verdicts.csv",
        summary=f"{RESULTS}/report/data/summary.csv",
        editions=f"{RESULTS}/report/editions.json",
        picture=f"{RESULTS}/report/og.png",
        robots=f"{RESULTS}/report/robots.txt",
    log:
        f"{RESULTS}/logs/site.log",
    conda:
        "../envs/study.yaml"
    params:
        data=subpath(input.summary, parent=True),
        report=subpath(input.html, parent=True),
        published=PUBLISHED_WORDS,
    shell:
        "python -m report site --verdicts {input.verdicts:q} --data {params.data:q} --report {params.report:q} "
        "{params.published:q} 2> {log:q}"
