"""The command ``enrich``: columns with PubMed's data about articles, through the E-utilities."""
