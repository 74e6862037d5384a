#!/bin/sh
# The workflow of the container's study; its results lie in the working directory.
exec snakemake --snakefile /study/Snakefile --cores all "$@"
