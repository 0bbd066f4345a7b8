"""Filter image-text pairs for training, and publish them as WebDataset shards with an index.

biovl assemble default --set figures=DIR --set out=DIR
ray job submit -- biovl assemble training --set figures=s3://… --set out=s3://…
"""

from biovl.assemble.config import RECIPES, AssembleConfig
from biovl.core import lazy
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        AssembleConfig, RECIPES, lazy.function("biovl.assemble.job:assemble"), about=__doc__
    )
