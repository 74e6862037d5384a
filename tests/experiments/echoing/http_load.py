"""HTTP load generator, unchanged."""

from experiments.serving.http_load import main

main()
