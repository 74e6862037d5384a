"""What is measured, and how. Knows nothing of claims, verdicts or reports."""

from experiments import environment

# Before any library is loaded: some ask for these variables once.
environment.go_offline()
