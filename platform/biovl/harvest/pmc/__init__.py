"""Harvest of PMC's open-data bucket: list articles, select versions, download files. No Ray."""
