"""Convert distributed benchmark data to one folder: images, labels, splits, licence and counts.

biovl prepare pcam --set raw=DOWNLOADS --set out=prepared/pcam
biovl prepare --list

--list names the files of each data set, where to download them, their licence and size.
"""

import sys

from biovl.benchmark.prepare.config import RECIPES, PrepareConfig, listing
from biovl.core import lazy
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    if "--list" in sys.argv[1:]:
        sys.stdout.write(listing())
        return
    command_line.main(
        PrepareConfig, RECIPES, lazy.function("biovl.benchmark.prepare.job:prepare"), about=__doc__
    )
