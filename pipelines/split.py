"""Split compound figures into panels with their own captions and citations.

python pipelines/split.py --set figures=DIR --set out=DIR
ray job submit -- python pipelines/split.py --set figures=s3://… --set out=s3://…
"""

from biovl.runtime import command_line
from biovl.split.config import RECIPES, SplitConfig
from biovl.split.job import split_figures

if __name__ == "__main__":
    command_line.main(SplitConfig, RECIPES, split_figures, about=__doc__)
