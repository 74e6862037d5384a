#!/bin/sh
# Run the workflow in the container, with results in the working directory.
exec snakemake --snakefile /study/Snakefile --cores all "$@"
