"""Language models in the shapes that people run, as GGUF files, and the runtimes that read them."""
