"""Train a detector of panels on drawn figures, for split to take as further proposals.

python pipelines/train_detector.py default --set out=DIR --set workers.gpus=1
ray job submit -- python pipelines/train_detector.py default --set out=s3://… --set workers.gpus=1
"""

from biovl import drivers, recipes
from biovl.detection.config import DetectorConfig
from biovl.jobs.detector import train_detector

if __name__ == "__main__":
    drivers.main(DetectorConfig, recipes.DETECTOR, train_detector, about=__doc__)
