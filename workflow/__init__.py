"""The workflow: its rules, and what a person sees of a run."""
