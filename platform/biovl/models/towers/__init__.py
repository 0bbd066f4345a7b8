"""The two towers for training: raw pixels and captions of any length in, unit features out."""

from biovl.models.towers.images import ImageTower
from biovl.models.towers.texts import TextTower

__all__ = ["ImageTower", "TextTower"]
