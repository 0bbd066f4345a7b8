"""Interpolate the weights of two models (WiSE-FT) and publish the result as a model.

python pipelines/merge.py wise_ft --set base=MODEL --set tuned=MODEL --set alpha=0.5 --set out=DIR
python pipelines/merge.py sweep --set base=MODEL --set tuned=MODEL --set corpus=DIR --set out=DIR
"""

from biovl.finetune.merge_config import RECIPES, MergeConfig
from biovl.finetune.merge_job import merge
from biovl.runtime import command_line

if __name__ == "__main__":
    command_line.main(MergeConfig, RECIPES, merge, about=__doc__)
