"""A small synthetic corpus: realistic PMC packages without third-party content.

Nothing is downloaded and no text is copied. Captions describe what their images show, so that a
small model can learn from them; the JATS contains the structures that are hard to parse.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biovl.sample.damaged import make_damaged_packages
    from biovl.sample.packages import make_packages

__all__ = ["make_damaged_packages", "make_packages"]


def __getattr__(name: str) -> Any:
    # Imported on first use: settings of a detector name the kinds of figures drawn here, and need
    # no Matplotlib.
    if name == "make_damaged_packages":
        from biovl.sample.damaged import make_damaged_packages

        return make_damaged_packages
    if name == "make_packages":
        from biovl.sample.packages import make_packages

        return make_packages
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
