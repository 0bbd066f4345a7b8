"""The job ``harvest``: PMC packages or a table of images to ``figures/`` and ``articles/``."""
