"""Ask PubMed about the articles of a harvest: MeSH terms, dates, types, who cites them.

NCBI_EMAIL=you@example.org python pipelines/enrich.py entrez --set articles=DIR
NCBI_API_KEY=… python pipelines/enrich.py entrez --set articles=s3://… --set cache=s3://…
"""

from biovl import drivers, recipes
from biovl.entrez.config import EnrichConfig
from biovl.jobs.enrich import enrich, estimate

if __name__ == "__main__":
    drivers.main(EnrichConfig, recipes.ENRICH, enrich, about=__doc__, estimate=estimate)
