"""GGUF files for language models in widely used shapes, and the runtimes that load them."""
