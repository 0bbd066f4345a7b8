"""The two towers as training sees them: raw pixels and ragged captions in, unit features out."""

from biovl.towers.images import ImageTower
from biovl.towers.texts import TextTower

__all__ = ["ImageTower", "TextTower"]
