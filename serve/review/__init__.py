"""Review of clusters by people. ``serve run serve.review:build concepts=DIR``."""

from serve.review.app import build

__all__ = ["build"]
