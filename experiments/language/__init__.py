"""GGUF files of language models in widely used shapes, and the runtimes that load these files."""
