"""Upload a published folder to the Hugging Face Hub, as a private repository by default.

biovl publish hub --set folder=DIR --set repo=USER/NAME [--dry-run]
biovl publish hub --set folder=DIR --set repo=USER/NAME --set public=true …
biovl publish scores --set folder=MODEL --set 'reports=["DIR"]' --set out=DIR
"""

from biovl.core import lazy
from biovl.publish.config import RECIPES, PublishConfig
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        PublishConfig,
        RECIPES,
        lazy.function("biovl.publish.job:publish"),
        about=__doc__,
        estimate=lazy.function("biovl.publish.job:dry_run_text"),
    )
