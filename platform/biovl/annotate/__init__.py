"""The command ``annotate``: columns computed from a table of images."""
