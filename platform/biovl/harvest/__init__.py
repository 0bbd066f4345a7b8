"""The command ``harvest``: PMC packages or a table of images to ``figures/`` and ``articles/``."""
