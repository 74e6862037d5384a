"""What is measured, and how. Knows nothing of claims, verdicts or reports."""
