"""The job ``enrich``: columns with PubMed metadata of articles, from NCBI's E-utilities."""
