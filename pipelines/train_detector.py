"""Train a panel detector on synthetic figures, for additional proposals in the split job.

python pipelines/train_detector.py default --set out=DIR --set workers.gpus=1
ray job submit -- python pipelines/train_detector.py default --set out=s3://… --set workers.gpus=1
"""

from biovl.runtime import command_line
from biovl.split.detector.config import RECIPES, DetectorConfig
from biovl.split.detector_job import train_detector

if __name__ == "__main__":
    command_line.main(DetectorConfig, RECIPES, train_detector, about=__doc__)
