"""Send a published folder to the Hugging Face hub, private unless told otherwise.

python pipelines/publish.py hub --set folder=DIR --set repo=USER/NAME [--dry-run]
python pipelines/publish.py hub --set folder=DIR --set repo=USER/NAME --set public=true …
"""

from biovl import drivers, recipes
from biovl.jobs.publish import estimate, publish
from biovl.publishing.config import PublishConfig

if __name__ == "__main__":
    drivers.main(PublishConfig, recipes.PUBLISH, publish, about=__doc__, estimate=estimate)
