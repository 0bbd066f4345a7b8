"""Manual labelling of clusters. ``serve run serve.review:build concepts=DIR``."""

from serve.review.app import build

__all__ = ["build"]
