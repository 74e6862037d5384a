"""What is measured, and how. Knows nothing of claims, verdicts or reports."""

from experiments import worker_environment

# Before any library is loaded: some ask for these variables once.
worker_environment.go_offline()
