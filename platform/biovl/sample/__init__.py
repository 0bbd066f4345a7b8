"""A small synthetic corpus: realistic PMC packages without third-party content.

Nothing is downloaded and no text is copied. Captions describe what their images show, so that a
small model can learn from them; the JATS contains the structures that are hard to parse.
"""

from biovl.sample.damaged import make_damaged_packages
from biovl.sample.packages import make_packages

__all__ = ["make_damaged_packages", "make_packages"]
