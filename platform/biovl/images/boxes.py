"""Rectangles in an image: the boxes of panels and of their printed labels."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels, from the upper left corner of the image; the end is exclusive."""

    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def area(self) -> float:
        """Square pixels; 0 where the end is not beyond the start."""
        return max(self.width, 0.0) * max(self.height, 0.0)

    @property
    def centre(self) -> tuple[float, float]:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def scaled(self, by: float) -> "Box":
        """Return the box in an image that is ``by`` times as large."""
        return Box(self.x0 * by, self.y0 * by, self.x1 * by, self.y1 * by)

    def moved(self, x: float, y: float) -> "Box":
        return Box(self.x0 + x, self.y0 + y, self.x1 + x, self.y1 + y)

    def contains(self, other: "Box", *, slack_px: float = 0.0) -> bool:
        """Return whether another box lies within this one, give or take some pixels."""
        return (
            self.x0 - slack_px <= other.x0
            and self.y0 - slack_px <= other.y0
            and other.x1 <= self.x1 + slack_px
            and other.y1 <= self.y1 + slack_px
        )


def overlap(first: Box, second: Box) -> float:
    """Return the area that two boxes share, in square pixels."""
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return max(width, 0.0) * max(height, 0.0)


def iou(first: Box, second: Box) -> float:
    """Return the shared area over the area of both together, 0..1; 0 for two empty boxes."""
    shared = overlap(first, second)
    union = first.area + second.area - shared
    return shared / union if union > 0 else 0.0


def enclosing(boxes: Sequence[Box]) -> Box:
    """Return the smallest box around all of at least one."""
    return Box(
        min(box.x0 for box in boxes),
        min(box.y0 for box in boxes),
        max(box.x1 for box in boxes),
        max(box.y1 for box in boxes),
    )


@dataclass(frozen=True, slots=True)
class PanelFound:
    """One panel of a figure."""

    box: Box
    """In pixels of the figure. It holds the panel's label, axis titles and colour bars."""

    label: str | None
    """As the caption has it, or as printed; None if there is none."""

    label_box: Box | None
    confidence: float
    """0..1, that there is a panel with this box."""

    how: str
    """What the box rests on: ``labels``, ``layout``, or ``whole``, a figure that is not cut."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A box that a detector takes for a panel."""

    box: Box
    score: float
    """0..1."""
