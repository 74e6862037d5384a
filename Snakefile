# The workflow lies in workflow/; this file lets `snakemake` find it from here.
include: "workflow/Snakefile"


rule study:
    default_target: True
    input:
        rules.all.input,
