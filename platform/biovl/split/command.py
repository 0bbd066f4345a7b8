"""Split compound figures into panels with their own captions and citations.

biovl split --set figures=DIR --set out=DIR
ray job submit -- biovl split --set figures=s3://… --set out=s3://…
"""

from biovl.core import lazy
from biovl.runtime import command_line
from biovl.split.config import RECIPES, SplitConfig


def main() -> None:
    """Run the command line."""
    command_line.main(
        SplitConfig, RECIPES, lazy.function("biovl.split.job:split_figures"), about=__doc__
    )
