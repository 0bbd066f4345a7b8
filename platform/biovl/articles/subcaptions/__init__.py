"""Splitting of compound captions: the text about each panel, and about all of them."""

from biovl.articles.subcaptions.splitting import CaptionPart, SplitCaption, split_caption

__all__ = ["CaptionPart", "SplitCaption", "split_caption"]
