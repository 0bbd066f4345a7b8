"""The caption of a compound figure in parts: what is said of each panel, and what of all."""

from biovl.articles.subcaptions.splitting import Part, SplitCaption, split_caption

__all__ = ["Part", "SplitCaption", "split_caption"]
