"""A small synthetic corpus: realistic PMC packages without third-party content.

Nothing is downloaded and no text is copied. Captions describe what their images show, so that a
small model can learn from them; the JATS contains the structures that are hard to parse.
"""

from biovl.core import lazy

# Settings of a detector name the kinds of figures drawn here, and need no Matplotlib.
make_packages = lazy.function("biovl.sample.packages:make_packages")
make_damaged_packages = lazy.function("biovl.sample.damaged:make_damaged_packages")
