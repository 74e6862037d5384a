"""The Snakemake workflow: rules, helpers and console output."""

import contract  # noqa: F401  # reports an old Python
