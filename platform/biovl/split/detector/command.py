"""Train a panel detector on synthetic figures, for additional proposals in the split job.

biovl train_detector default --set out=DIR --set workers.gpus=1
ray job submit -- biovl train_detector default --set out=s3://… --set workers.gpus=1
"""

from biovl.core import lazy
from biovl.runtime import command_line
from biovl.split.detector.config import RECIPES, DetectorConfig


def main() -> None:
    """Run the command line."""
    command_line.main(
        DetectorConfig,
        RECIPES,
        lazy.function("biovl.split.detector_job:train_detector"),
        about=__doc__,
    )
