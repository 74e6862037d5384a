"""Process that runs the load generator in `experiments.serving.http_load` unchanged."""

from experiments.serving.http_load import main

main()
