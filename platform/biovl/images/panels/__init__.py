"""Compound figures to panels: the box of each and the label it has."""

from biovl.images.panels.splitting import split_figure

__all__ = ["split_figure"]
