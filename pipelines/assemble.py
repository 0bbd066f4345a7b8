"""Filter image-text pairs for training, and publish them as WebDataset shards with an index.

python pipelines/assemble.py default --set figures=DIR --set out=DIR
ray job submit -- python pipelines/assemble.py training --set figures=s3://… --set out=s3://…
"""

from biovl.assemble.config import RECIPES, AssembleConfig
from biovl.assemble.job import assemble
from biovl.runtime import command_line

if __name__ == "__main__":
    command_line.main(AssembleConfig, RECIPES, assemble, about=__doc__)
