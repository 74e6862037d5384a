"""The processes of `experiments.serving`, with a service beside the others that is there at once."""
