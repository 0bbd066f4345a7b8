"""Citances: sentences that cite a figure, and their statements about its panels."""

from biovl.articles.citances.extraction import Citance, citances, citances_of
from biovl.articles.citances.grammar import references

__all__ = ["Citance", "citances", "citances_of", "references"]
