"""Extract figures, captions and articles from the literature, and publish them as tables.

python pipelines/harvest.py pmc_sample --set out=DIR
python pipelines/harvest.py pmc_open_data --set out=DIR --dry-run
python pipelines/harvest.py packages --set source.path=DIR --set out=DIR
ray job submit -- python pipelines/harvest.py packages --set source.path=s3://… --set out=s3://…
"""

from biovl.harvest.config import RECIPES, HarvestConfig
from biovl.harvest.job import estimate, harvest
from biovl.runtime import command_line

if __name__ == "__main__":
    command_line.main(HarvestConfig, RECIPES, harvest, about=__doc__, estimate=estimate)
