"""The study's own kernels, one module per family, written to run exactly as they read."""
