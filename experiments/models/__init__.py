"""Reference models, their real data, and the multiply-adds that a step of each takes."""
