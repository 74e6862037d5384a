"""From samples to verdicts: gathers what nodes measured, judges the claims, writes the report.

It meets `experiments` only in the data, through `contract`.
"""
