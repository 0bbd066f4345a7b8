"""Splitting of compound captions: the text about each panel, and about all of them."""

from biovl.articles.subcaptions.splitting import Part, SplitCaption, split_caption

__all__ = ["Part", "SplitCaption", "split_caption"]
