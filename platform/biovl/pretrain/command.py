r"""Train a CLIP model on a corpus, and publish it in open_clip's format.

biovl pretrain tiny --set corpus=DIR --set out=DIR
biovl pretrain biomedclip --set corpus=DIR --set out=DIR --dry-run
ray job submit -- biovl pretrain biomedclip --set corpus=s3://… --set out=s3://… \
    --set workers.count=16 --set workers.gpus=1

An interrupted run resumes with the same command, from its last checkpoint and with the pairs it has
not trained on yet.
"""

from biovl.core import lazy
from biovl.pretrain.config import RECIPES, PretrainConfig
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        PretrainConfig,
        RECIPES,
        lazy.function("biovl.pretrain.job:pretrain"),
        about=__doc__,
        estimate=lazy.function("biovl.pretrain.job:dry_run_text"),
    )
