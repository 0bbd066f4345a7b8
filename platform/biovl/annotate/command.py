r"""Compute an additional column for a table of images: embeddings, image types, long captions.

biovl annotate dinov2 --set table=DIR --set weights=DIR
biovl annotate longcap --set table=DIR --set annotator.cache=DIR \
    --set annotator.endpoint.url=https://…/v1 --dry-run
ray job submit -- biovl annotate dinov2 --set table=s3://… --set workers.gpus=1 …
"""

from biovl.annotate.config import RECIPES, AnnotateConfig
from biovl.core import lazy
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        AnnotateConfig,
        RECIPES,
        lazy.function("biovl.annotate.job:annotate"),
        about=__doc__,
        estimate=lazy.function("biovl.annotate.estimate:dry_run_text"),
    )
