"""The commands ``cluster`` and ``resolve``: images to clusters, reviewers' votes to labels."""
