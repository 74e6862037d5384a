"""Language models as GGUF files in widely used shapes, and runtimes for them."""
