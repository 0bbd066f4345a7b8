"""Generate synthetic PMC packages: ``biovl sample OUT [--articles 24]``."""

import argparse
import json
import sys
from pathlib import Path

from biovl.core.errors import ArtifactError, BiovlError
from biovl.core.folders import Folder
from biovl.sample import make_damaged_packages, make_packages


def main() -> None:
    """Generate valid and damaged packages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="a folder that does not exist yet, or is empty")
    parser.add_argument("--articles", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.articles < 1 or args.seed < 0:
        parser.error("--articles is at least 1, --seed not negative")
    try:
        refuse_a_full_folder(args.out)
    except BiovlError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    healthy = make_packages(args.out, articles=args.articles, seed=args.seed)
    damaged = make_damaged_packages(args.out, seed=args.seed)
    print(args.out)
    print(json.dumps({"out": str(args.out), "packages": len(healthy), "damaged": len(damaged)}))


def refuse_a_full_folder(path: Path) -> None:
    """Create a folder, or accept an empty one.

    Raises:
        ArtifactError: If it cannot be created or is not empty.
    """
    folder = Folder(str(path))
    folder.create()
    if entries := folder.entries():
        raise ArtifactError(f"{path} is not empty ({', '.join(entries[:3])} …): choose another one")
