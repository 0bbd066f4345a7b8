"""Boxes of panels and of their printed labels."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels, from the top left corner of the image; the end is exclusive."""

    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def width(self) -> float:
        """Width in pixels."""
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        """Height in pixels."""
        return self.y1 - self.y0

    @property
    def area(self) -> float:
        """Area in square pixels; 0 if an end is before its start."""
        return max(self.width, 0.0) * max(self.height, 0.0)

    @property
    def centre(self) -> tuple[float, float]:
        """Centre as (x, y)."""
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def scaled(self, by: float) -> "Box":
        """Return the box in an image scaled by a factor."""
        return Box(self.x0 * by, self.y0 * by, self.x1 * by, self.y1 * by)

    def moved(self, x: float, y: float) -> "Box":
        """Return the box shifted by ``x`` and ``y`` pixels."""
        return Box(self.x0 + x, self.y0 + y, self.x1 + x, self.y1 + y)


def overlap(first: Box, second: Box) -> float:
    """Return the intersection of two boxes in square pixels."""
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return max(width, 0.0) * max(height, 0.0)


def iou(first: Box, second: Box) -> float:
    """Return the intersection over union, 0..1; 0 for two empty boxes."""
    shared = overlap(first, second)
    union = first.area + second.area - shared
    return shared / union if union > 0 else 0.0


def enclosing(boxes: Sequence[Box]) -> Box:
    """Return the bounding box of at least one box."""
    return Box(
        min(box.x0 for box in boxes),
        min(box.y0 for box in boxes),
        max(box.x1 for box in boxes),
        max(box.y1 for box in boxes),
    )


@dataclass(frozen=True, slots=True)
class PanelFound:
    """A detected panel of a figure, with its label."""

    box: Box
    """Box in pixels of the figure, including the panel's label, axis titles and colour bars."""

    label: str | None
    """Label as in the caption, or as printed; None if there is none."""

    label_box: Box | None
    confidence: float
    """Probability that there is a panel with this box, 0..1."""

    how: str
    """Basis of the box: ``labels``, ``layout``, or ``whole`` for a figure that is not split."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Box proposed by a panel detector, with its score."""

    box: Box
    score: float
    """Confidence of the detector, 0..1."""
