"""Read PMC packages and publish their figures and articles.

python pipelines/harvest.py packages --set source.path=DIR --set out=DIR
ray job submit -- python pipelines/harvest.py packages --set source.path=s3://… --set out=s3://…
"""

from biovl import drivers, recipes
from biovl.jobs.harvest import HarvestConfig, harvest

if __name__ == "__main__":
    drivers.main(HarvestConfig, recipes.HARVEST, harvest, about=__doc__)
