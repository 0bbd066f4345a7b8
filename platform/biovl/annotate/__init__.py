"""The job ``annotate``: columns computed from a table of images."""
