r"""Compute an additional column for a table of images: embeddings, image types, long captions.

python pipelines/annotate.py dinov2 --set table=DIR --set weights=DIR
python pipelines/annotate.py longcap --set table=DIR --set annotator.cache=DIR \
    --set annotator.endpoint.url=https://…/v1 --dry-run
ray job submit -- python pipelines/annotate.py dinov2 --set table=s3://… --set workers.gpus=1 …
"""

from biovl.annotate.config import RECIPES, AnnotateConfig
from biovl.annotate.estimate import estimated
from biovl.annotate.job import annotate
from biovl.runtime import command_line

if __name__ == "__main__":
    command_line.main(AnnotateConfig, RECIPES, annotate, about=__doc__, estimate=estimated)
