"""Write a small corpus of PMC packages: ``python pipelines/sample.py OUT [--articles 24]``."""

import argparse
import json
from pathlib import Path

from biovl.sample import make_damaged_packages, make_packages

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path, help="a folder that is not there yet, or empty")
parser.add_argument("--articles", type=int, default=24)
parser.add_argument("--seed", type=int, default=0)

if __name__ == "__main__":
    args = parser.parse_args()
    healthy = make_packages(args.out, articles=args.articles, seed=args.seed)
    damaged = make_damaged_packages(args.out, seed=args.seed)
    print(args.out)
    print(json.dumps({"out": str(args.out), "packages": len(healthy), "damaged": len(damaged)}))
