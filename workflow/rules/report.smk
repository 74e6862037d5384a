# The published report: figures family by family, then the pages and PDFs. It runs after measuring, never beside it.

FAMILIES = ["claims", "front", *(name.replace("_", "-") for name in families.FAMILIES)]


# One family's figures: drawn again where its data, its own file or the charts have changed.
rule figures:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        summary=f"{RESULTS}/data/summary.parquet",
        code=lambda wildcards: code(
            "pages/charts.py",
            "pages/evidence.py",
            "pages/shown.py",
            "pages/plain.py",
            "pages/words.py",
            "formatting.py",
            *family_code(wildcards.family),
        ),
    output:
        f"{RESULTS}/report/figures/{{family}}.json",
    log:
        f"{RESULTS}/logs/figures-{{family}}.log",
    wildcard_constraints:
        family="|".join(FAMILIES),
    localrule: True
    params:
        data=subpath(input.summary, parent=True),
        out=subpath(output[0], parent=True),
    shell:
        "python -m report figures {wildcards.family} --verdicts {input.verdicts:q} --data {params.data:q} "
        "--out {params.out:q} 2> {log:q}"


rule report:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        summary=f"{RESULTS}/data/summary.parquet",
        figures=expand(f"{RESULTS}/report/figures/{{family}}.json", family=FAMILIES),
        calibration=str(HOME / "data/calibration.json"),
        code=code(
            "pages/**/*.py",
            "pages/templates/**/*",
            "publish/*.py",
            "formatting.py",
            "*.yaml",
        ),
        citation=str(HOME / "CITATION.cff"),
        previous=config["previous"] or [],
    output:
        html=f"{RESULTS}/report/index.html",
        pdf=report(
            f"{RESULTS}/report/report.pdf",
            caption="../report/report.rst",
            category="Report",
            labels={"file": "report"},
        ),
        appendix=report(
            f"{RESULTS}/report/appendix.pdf",
            caption="../report/appendix.rst",
            category="Report",
            labels={"file": "appendix"},
        ),
        source=f"{RESULTS}/report/index.qmd",
    log:
        f"{RESULTS}/logs/report.log",
    localrule: True
    threads: CORES
    params:
        renderer=config["renderer"],
        published=PUBLISHED_WORDS,
        data=subpath(input.summary, parent=True),
        out=subpath(output.html, parent=True),
        # The report takes its place.
        preliminary=f"{RESULTS}/preliminary",
    shell:
        "python -m report render --verdicts {input.verdicts:q} --data {params.data:q} --drawn "
        "--out {params.out:q} --renderer {params.renderer:q} {params.published:q} 2> {log:q} "
        "&& rm -rf {params.preliminary:q}"
