"""Cluster the images of a table by embedding, and publish contact sheets for manual labelling.

biovl cluster default --set table=DIR --set clusters=K --set out=DIR
ray job submit -- biovl cluster default --set table=s3://… --set out=s3://…
"""

from biovl.concepts.cluster_config import RECIPES, ClusterConfig
from biovl.core import lazy
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        ClusterConfig, RECIPES, lazy.function("biovl.concepts.cluster_job:cluster"), about=__doc__
    )
