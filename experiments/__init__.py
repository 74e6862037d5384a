"""Measure experiments on the CPU and on GPUs; independent from claims, verdicts and reports."""

from experiments import worker_environment

# Before any import: some libraries read these variables only once.
worker_environment.go_offline()
