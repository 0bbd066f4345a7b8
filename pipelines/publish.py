"""Upload a published folder to the Hugging Face Hub, as a private repository by default.

python pipelines/publish.py hub --set folder=DIR --set repo=USER/NAME [--dry-run]
python pipelines/publish.py hub --set folder=DIR --set repo=USER/NAME --set public=true …
"""

from biovl.publish.config import RECIPES, PublishConfig
from biovl.publish.job import estimate, publish
from biovl.runtime import command_line

if __name__ == "__main__":
    command_line.main(PublishConfig, RECIPES, publish, about=__doc__, estimate=estimate)
