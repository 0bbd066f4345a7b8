"""Add PubMed metadata to the articles of a harvest: MeSH terms, dates, types, citations.

NCBI_EMAIL=you@example.org biovl enrich entrez --set articles=DIR
NCBI_API_KEY=… biovl enrich entrez --set articles=s3://… --set cache=s3://…
"""

from biovl.core import lazy
from biovl.enrich.config import RECIPES, EnrichConfig
from biovl.runtime import command_line


def main() -> None:
    """Run the command line."""
    command_line.main(
        EnrichConfig,
        RECIPES,
        lazy.function("biovl.enrich.job:enrich"),
        about=__doc__,
        estimate=lazy.function("biovl.enrich.job:estimate"),
    )
