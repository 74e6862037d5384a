"""Processes of `experiments.serving` with an added service that loads no model."""
