"""A split caption in the notation of the cases."""

from biovl.articles.subcaptions.splitting import split_caption


def read(caption: str) -> list[str]:
    """Return preamble, parts as ``A,B: text``, and trailing text."""
    split = split_caption(caption)
    parts = [f"{','.join(part.labels)}: {part.text}" for part in split.parts]
    return [split.preamble, *parts, split.trailing]
