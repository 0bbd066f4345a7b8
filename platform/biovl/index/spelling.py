"""One spelling for words that captions and queries encode in several ways."""

import unicodedata

_DASHES = str.maketrans("\u2010\u2011\u2019\u2032", "--''")


def plain(text: str) -> str:
    """Return a text with one character for each hyphen and apostrophe, in Unicode's form NFKC."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text.translate(_DASHES)).translate(_DASHES)
