"""Kernels written for this study, which execute exactly the operations that their source text shows."""
