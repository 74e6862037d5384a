"""Reference models with real data and known operation counts."""
