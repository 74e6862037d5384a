"""The load, as it is."""

from experiments.serving.load import main

main()
