"""Splitting of compound figures into panels: the box and label of each."""

from biovl.images.panels.splitting import split_figure

__all__ = ["split_figure"]
