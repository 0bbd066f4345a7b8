"""Label clusters by the majority of their reviewers, and images by their clusters.

python pipelines/resolve.py default --set concepts=DIR --set votes=votes.csv --set out=DIR
"""

from biovl.concepts.resolve_config import RECIPES, ResolveConfig
from biovl.concepts.resolve_job import resolve
from biovl.runtime import command_line

if __name__ == "__main__":
    command_line.main(ResolveConfig, RECIPES, resolve, about=__doc__)
