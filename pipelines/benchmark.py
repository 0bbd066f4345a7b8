"""Evaluate models on benchmarks, and publish a report with all predictions.

python pipelines/benchmark.py retrieval --set model=DIR --set corpus=DIR --set out=DIR
python pipelines/benchmark.py zero_shot --set model=DIR --set data=CLASS_FOLDERS --set out=DIR
python pipelines/benchmark.py biomedica,pmc_long --set 'models={"a": "DIR", "b": "DIR"}' …
python pipelines/benchmark.py --list [--set data_root=DIR]

Names of recipes, suites and benchmarks may be joined by commas.
"""

import sys

from biovl.benchmark.benchmarks import listing_for, with_benchmarks
from biovl.benchmark.config import RECIPES, BenchmarkConfig
from biovl.benchmark.job import benchmark
from biovl.runtime import command_line

if __name__ == "__main__":
    if "--list" in sys.argv[1:]:
        print(listing_for(sys.argv[1:]))
    else:
        known = with_benchmarks(RECIPES)
        command_line.main(BenchmarkConfig, known, benchmark, about=__doc__)
