"""Embed a corpus, and publish a search index for images, texts, words and filters.

python pipelines/index.py default --set model=DIR --set corpus=DIR --set out=DIR
ray job submit -- python pipelines/index.py default --set model=s3://… --set corpus=s3://… …
"""

from biovl.index.config import RECIPES, IndexConfig
from biovl.index.job import index
from biovl.runtime import command_line

if __name__ == "__main__":
    command_line.main(IndexConfig, RECIPES, index, about=__doc__)
