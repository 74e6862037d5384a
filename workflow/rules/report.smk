# Make the report: figures, then pages and PDFs. This runs after measuring, never in parallel.

# Code files per group of figures; one process draws a group. With one process per family of figures, the evidence would
# be read about twenty times, which takes far longer than drawing.
FIGURES = {
    "claims": ["pages/claim_figure.py", "pages/previews.py"],
    "front": [
        "pages/front_page.py",
        "pages/previews.py",
        "pages/step_chart.py",
        "pages/families/*.py",
        "pages/pictures/*.py",
    ],
    "measurements": [
        "pages/families/*.py",
        "pages/exhibit_types.py",
        "pages/heading_numbers.py",
        "pages/chart_rows.py",
        "pages/step_chart.py",
        "pages/estimate_list.py",
        "pages/sections.py",
    ],
}


# Draw a group's figures again when data, its code or the charts change.
rule figures:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        results=f"{RESULTS}/data/results.parquet",
        code=lambda wildcards: code_files(
            "pages/charts.py",
            "pages/estimate_drawing.py",
            "pages/svg.py",
            "pages/figure_data.py",
            "pages/machine_selection.py",
            "pages/control_characters.py",
            "pages/verdict_words.py",
            "formatting.py",
            *FIGURES[wildcards.part],
        ),
    output:
        f"{RESULTS}/report/figures/{{part}}.json",
    log:
        f"{RESULTS}/logs/figures-{{part}}.log",
    wildcard_constraints:
        part="|".join(FIGURES),
    localrule: True
    params:
        data=subpath(input.results, parent=True),
        out=subpath(output[0], parent=True),
    # A failed figure does not stop the others: `complete` reports it at the end.
    shell:
        "python -m report figures {wildcards.part} --verdicts {input.verdicts:q} --data {params.data:q} "
        "--out {params.out:q} 2> {log:q} || test -s {output:q}"


rule report:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        results=f"{RESULTS}/data/results.parquet",
        figures=expand(f"{RESULTS}/report/figures/{{part}}.json", part=FIGURES),
        calibration=str(HOME / "data/calibration.json"),
        advice=f"{RESULTS}/advice.json",
        code=code_files(
            "pages/**/*.py",
            "pages/templates/**/*",
            "advice/*",
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
        failures=f"{RESULTS}/report/failures.json",
    log:
        f"{RESULTS}/logs/report.log",
    localrule: True
    threads: CORES
    params:
        renderer=config["renderer"],
        published=PUBLISHED_WORDS,
        data=subpath(input.results, parent=True),
        out=subpath(output.html, parent=True),
        # The preliminary page is removed once the report exists.
        preliminary=f"{RESULTS}/preliminary",
    # A failed page does not stop the others: failures.json, written last, lists it, and `complete` reports it at the end.
    shell:
        "( python -m report render --verdicts {input.verdicts:q} --data {params.data:q} --drawn --advice {input.advice:q} "
        "--out {params.out:q} --renderer {params.renderer:q} {params.published:q} 2> {log:q} "
        "|| test -s {output.failures:q} ) "
        "&& rm -rf {params.preliminary:q}"


# Finish the study. If pages or figures could not be made, fail with their names.
rule complete:
    input:
        failures=f"{RESULTS}/report/failures.json",
        lint=f"{RESULTS}/lint.txt",
        editions=f"{RESULTS}/report/editions.json",
    output:
        touch(f"{RESULTS}/.complete"),
    log:
        f"{RESULTS}/logs/complete.log",
    localrule: True
    params:
        report=subpath(input.failures, parent=True),
    shell:
        "python -m report failures --report {params.report:q} 2> {log:q}"
