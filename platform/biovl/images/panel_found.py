"""What is found out about a panel of a figure."""

from dataclasses import dataclass

from biovl.images.boxes import Box


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
