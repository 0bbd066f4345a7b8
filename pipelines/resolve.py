"""Label clusters as most of their reviewers do, and images as their clusters.

python pipelines/resolve.py default --set concepts=DIR --set votes=votes.csv --set out=DIR
"""

from biovl import drivers, recipes
from biovl.jobs.resolve import resolve
from biovl.labelling.config import ResolveConfig

if __name__ == "__main__":
    drivers.main(ResolveConfig, recipes.RESOLVE, resolve, about=__doc__)
