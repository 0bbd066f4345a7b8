"""Label clusters by the majority of their reviewers, and images by their clusters.

biovl resolve default --set concepts=DIR --set votes=votes.csv --set out=DIR
"""

from biovl.concepts.resolve_config import RECIPES, ResolveConfig
from biovl.core import lazy
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        ResolveConfig, RECIPES, lazy.function("biovl.concepts.resolve_job:resolve"), about=__doc__
    )
