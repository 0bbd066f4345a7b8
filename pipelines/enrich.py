"""Add PubMed metadata to the articles of a harvest: MeSH terms, dates, types, citations.

NCBI_EMAIL=you@example.org python pipelines/enrich.py entrez --set articles=DIR
NCBI_API_KEY=… python pipelines/enrich.py entrez --set articles=s3://… --set cache=s3://…
"""

from biovl.enrich.config import RECIPES, EnrichConfig
from biovl.enrich.job import enrich, estimate
from biovl.runtime import command_line

if __name__ == "__main__":
    command_line.main(EnrichConfig, RECIPES, enrich, about=__doc__, estimate=estimate)
