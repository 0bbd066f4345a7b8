"""The command ``enrich``: columns of what PubMed knows of articles, through the E-utilities."""
