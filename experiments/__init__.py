"""Measure experiments on the CPU and on GPUs. This package does not depend on claims, verdicts and reports."""

from experiments import worker_environment

# Go offline before any library is imported: some libraries read these variables only once.
worker_environment.set_fixed_variables()
