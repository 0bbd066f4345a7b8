"""Evaluate models on benchmarks, and publish a report with all predictions.

biovl benchmark retrieval --set model=DIR --set corpus=DIR --set out=DIR
biovl benchmark zero_shot --set model=DIR --set data=CLASS_FOLDERS --set out=DIR
biovl benchmark biomedica,pmc_long --set 'models={"a": "DIR", "b": "DIR"}' …
biovl benchmark --list [--set data_root=DIR]

Names of recipes, suites and benchmarks may be joined by commas.
"""

import sys

from biovl.benchmark.benchmarks import listing_for, with_benchmarks
from biovl.benchmark.config import RECIPES, BenchmarkConfig
from biovl.core import lazy
from biovl.core.errors import BiovlError
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    if "--list" in sys.argv[1:]:
        try:
            print(listing_for(sys.argv[1:]))
        except BiovlError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
    else:
        known = with_benchmarks(RECIPES)
        command_line.main(
            BenchmarkConfig, known, lazy.function("biovl.benchmark.job:benchmark"), about=__doc__
        )
