"""Extract figures, captions and articles from the literature, and publish them as tables.

biovl harvest pmc_sample --set out=DIR
biovl harvest pmc_open_data --set out=DIR --dry-run
biovl harvest packages --set source.path=DIR --set out=DIR
ray job submit -- biovl harvest packages --set source.path=s3://… --set out=s3://…
"""

from biovl.core import lazy
from biovl.harvest.config import RECIPES, HarvestConfig
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        HarvestConfig,
        RECIPES,
        lazy.function("biovl.harvest.job:harvest"),
        about=__doc__,
        estimate=lazy.function("biovl.harvest.job:estimate"),
    )
