"""Embed a corpus, and publish a search index for images, texts, words and filters.

biovl index default --set model=DIR --set corpus=DIR --set out=DIR
ray job submit -- biovl index default --set model=s3://… --set corpus=s3://… …
"""

from biovl.core import lazy
from biovl.index.config import RECIPES, IndexConfig
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(IndexConfig, RECIPES, lazy.function("biovl.index.job:index"), about=__doc__)
