"""The study's own measuring process, which also knows the everyday calls."""

from experiments import worker
from studies.bench.points import register

if __name__ == "__main__":
    register()
    worker.serve()
