# The published report. It runs after measuring, never beside it.


rule report:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        summary=f"{RESULTS}/data/summary.parquet",
        calibration="data/calibration.json",
        templates=sorted(
            str(path) for path in Path("report/templates").rglob("*") if path.is_file()
        ),
        code=code(
            "render/**/*.py",
            "publish/*.py",
            "site/*.py",
            "formatting.py",
            "*.yaml",
        ),
        citation="CITATION.cff",
        previous=config["previous"] or [],
    output:
        html=f"{RESULTS}/report/index.html",
        pdf=f"{RESULTS}/report/report.pdf",
        source=f"{RESULTS}/report/index.qmd",
        reviews=f"{RESULTS}/report/claims.jsonld",
    log:
        f"{RESULTS}/logs/report.log",
    conda:
        "../envs/study.yaml"
    threads: workflow.cores
    params:
        renderer=config["renderer"],
        published=PUBLISHED_WORDS,
        data=subpath(input.summary, parent=True),
        out=subpath(output.html, parent=True),
        # The report takes its place.
        preliminary=f"{RESULTS}/preliminary",
    shell:
        "python -m report render --verdicts {input.verdicts:q} --data {params.data:q} "
        "--out {params.out:q} --renderer {params.renderer:q} {params.published:q} 2> {log:q} "
        "&& rm -rf {params.preliminary:q}"
