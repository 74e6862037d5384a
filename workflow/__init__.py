"""The Snakemake workflow: rules, helpers and console output."""
