"""One point by pyperf, at its defaults: `python -m studies.bench.pyperf_point LABEL --output FILE`."""

import sys

import pyperf

from studies.bench.points import build

if __name__ == "__main__":
    label = sys.argv[1]
    # pyperf starts its worker processes with these words.
    runner = pyperf.Runner(program_args=("-m", "studies.bench.pyperf_point", label))
    runner.argparser.add_argument("label")
    # The parent only starts workers: it needs no data of its own.
    call = build(label)[0] if runner.parse_args().worker else list
    runner.bench_func(label, call)
