r"""Run a hyperparameter sweep of pretrain, and publish its tables, plots and best recipe.

biovl sweep context_length --set corpus=DIR --set out=DIR --dry-run
biovl sweep context_length --set corpus=DIR --set out=DIR --set base.recipe=tiny
biovl sweep grid --set corpus=DIR --set out=DIR --set base.recipe=tiny \
    --set grid.model.context_length=[77,256] --set grid.batch.pairs=[16,32] --set seeds=3
ray job submit -- biovl sweep batch_size --set corpus=s3://… --set out=s3://… \
    --set base.workers.count=16 --set base.workers.gpus=1 --set asha.reduction=3

An interrupted sweep resumes with the same command: finished trials are not repeated, and the others
resume from their checkpoints.
"""

from biovl.core import lazy
from biovl.runtime import command_line
from biovl.sweep.config import SweepConfig
from biovl.sweep.spaces import SPACES


def main() -> None:
    """Run the command line."""
    command_line.main(
        SweepConfig,
        SPACES,
        lazy.function("biovl.sweep.job:sweep"),
        about=__doc__,
        estimate=lazy.function("biovl.sweep.job:dry_run_text"),
    )
