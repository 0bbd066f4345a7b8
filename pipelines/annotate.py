"""Compute a column of a table of images, beside it: embeddings, image types.

python pipelines/annotate.py dinov2 --set table=DIR --set weights=DIR
ray job submit -- python pipelines/annotate.py dinov2 --set table=s3://… --set workers.gpus=1 …
"""

from biovl import drivers, recipes
from biovl.annotating.config import AnnotateConfig
from biovl.jobs.annotate import annotate

if __name__ == "__main__":
    drivers.main(AnnotateConfig, recipes.ANNOTATE, annotate, about=__doc__)
