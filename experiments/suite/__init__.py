"""Experiments, one module each. A module only defines the work; other packages time, record and judge the work."""
