r"""Train a CLIP model on a corpus, and publish it in open_clip's format.

python pipelines/pretrain.py tiny --set corpus=DIR --set out=DIR
python pipelines/pretrain.py biomedclip --set corpus=DIR --set out=DIR --dry-run
ray job submit -- python pipelines/pretrain.py biomedclip --set corpus=s3://… --set out=s3://… \
    --set workers.count=16 --set workers.gpus=1

An interrupted run resumes with the same command, from its last checkpoint and with the pairs it has
not trained on yet.
"""

from biovl.pretrain.config import RECIPES, PretrainConfig
from biovl.pretrain.job import estimated, pretrain
from biovl.runtime import command_line

if __name__ == "__main__":
    command_line.main(PretrainConfig, RECIPES, pretrain, about=__doc__, estimate=estimated)
