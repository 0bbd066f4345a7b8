"""Columns computed of a table of images: its rows in batches, and their results in its parts."""
