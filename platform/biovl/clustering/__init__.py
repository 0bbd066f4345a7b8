"""Unlabelled embeddings to groups of alike images that people can look at."""
