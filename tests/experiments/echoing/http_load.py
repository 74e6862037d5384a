"""The load, as it is."""

from experiments.serving.http_load import main

main()
