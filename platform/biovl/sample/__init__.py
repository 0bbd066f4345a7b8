"""A small corpus of the project's own: PMC packages that look real and belong to nobody.

Nothing is downloaded and no text is copied. Captions describe what their images show, so that a
small model can learn from them; the JATS holds the structures in which figures are hard to read.
"""

from biovl.sample.damaged import make_damaged_packages
from biovl.sample.packages import make_packages

__all__ = ["make_damaged_packages", "make_packages"]
