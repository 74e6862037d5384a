# Write the dataset: tables of all measurements, published figures and verdicts, with an id for each number.


rule dataset:
    input:
        verdicts=f"{RESULTS}/verdicts.json",
        results=f"{RESULTS}/data/results.parquet",
        samples=f"{RESULTS}/data/samples.parquet",
        names=match_files(HOME / "data/names", "*.csv"),
        reference=match_files(HOME / "data/reference", "*.yaml"),
        published=match_files(HOME / "data/published", "*.csv", "*.yaml"),
        citation=str(HOME / "CITATION.cff"),
        code=code_files("dataset/*.py", "dataset/tables.yaml", "dataset/templates/*"),
    output:
        package=f"{RESULTS}/dataset/datapackage.json",
        sums=f"{RESULTS}/dataset/SHA256SUMS",
        card=f"{RESULTS}/dataset/README.md",
    log:
        f"{RESULTS}/logs/dataset.log",
    localrule: True
    params:
        data=subpath(input.results, parent=True),
        out=subpath(output.package, parent=True),
    shell:
        "python -m report dataset --data {params.data:q} --verdicts {input.verdicts:q} --out {params.out:q} 2> {log:q}"
