"""Kinds of synthetic compound figures, each with one difficulty."""

from dataclasses import dataclass
from typing import Any

from biovl.sample.compound.layouts import MANY, Rng


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """Settings of a kind of figures. Empty or None: drawn as often as in published figures."""

    rows: tuple[tuple[int, ...], ...] = ()
    """Arrangements to choose from; empty: with published frequencies."""
    gap_px: tuple[int, int] | None = None
    margin_px: tuple[int, int] = (0, 0)
    contents: str = "mixed"
    """Contents of panels: ``mixed``, ``plots``, ``photographs``, or ``one``: all are parts of one
    image."""
    background: tuple[str, ...] = ("white",)
    systems: tuple[str, ...] = ("upper", "upper", "upper", "lower")
    settings: tuple[str, ...] = ("{}", "{}", "{}", "{}", "({})", "{})")
    down: tuple[str, ...] = ()
    """Vertical positions of labels: ``above``, ``below``, ``top``, ``bottom``."""
    paper: tuple[str, ...] = ("none", "none", "white")
    missing: str = "never"
    """Missing labels: ``never``; ``some`` or ``all`` panels without a label; or ``doubled``: two
    panels have the same label."""
    inset: bool = False
    """Whether larger panels contain smaller ones."""
    parts: tuple[int, int] = (1, 1)
    """Minimum and maximum number of images or axes per label."""
    shared: bool = False
    """Whether colour bars, legends and titles outside the panels are drawn."""
    headings: bool = False
    quality: tuple[int, int] = (75, 96)
    """Minimum and maximum JPEG quality; 96: pixels are unchanged."""
    shrink: tuple[float, float] = (1.0, 1.0)


STRATA_PLANS: dict[str, Stratum] = {
    "plain": Stratum(gap_px=(8, 30), settings=("{}",), margin_px=(0, 10)),
    "print": Stratum(),
    "no_gutters": Stratum(gap_px=(0, 2), contents="photographs"),
    "same_texture": Stratum(gap_px=(0, 1), contents="one"),
    "dark": Stratum(background=("black", "#202020"), contents="photographs", gap_px=(0, 12)),
    "insets": Stratum(inset=True, gap_px=(2, 16)),
    "labels_outside": Stratum(down=("above", "above", "below"), gap_px=(34, 46), paper=("none",)),
    "labels_on_texture": Stratum(contents="photographs", paper=("none",), down=("top", "bottom")),
    "label_styles": Stratum(
        systems=("lower", "roman", "numbered", "primed", "digits", "greek"),
        settings=("{}", "({})", "{})", "{}."),
    ),
    "labels_some": Stratum(missing="some"),
    "labels_none": Stratum(missing="all"),
    "labels_doubled": Stratum(missing="doubled"),
    "plots": Stratum(contents="plots", gap_px=(4, 24)),
    "several_axes": Stratum(contents="plots", parts=(2, 4), gap_px=(10, 30)),
    "several_images": Stratum(contents="photographs", parts=(2, 6), gap_px=(8, 24)),
    "many": Stratum(rows=MANY),
    "single": Stratum(rows=((1,),), missing="all", parts=(1, 6)),
    "shared_parts": Stratum(shared=True, gap_px=(10, 36), margin_px=(10, 30)),
    "headings": Stratum(headings=True, missing="all", rows=((2,), (3,), (2, 2), (3, 3), (4,))),
    "damaged": Stratum(quality=(28, 45), shrink=(0.5, 0.8)),
}

STRATA: tuple[str, ...] = tuple(STRATA_PLANS)
"""Names of the kinds of figures that ``make_compound`` draws."""

VARIED = "varied"
"""A figure with random settings, for training: difficulties of several strata in one figure."""

_PARTS = ((1, 1), (1, 1), (1, 1), (1, 3), (2, 4), (2, 6))


def random_stratum(rng: Rng) -> Stratum:
    """Return a stratum with random settings, for training."""

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    is_single = rng.integers(8) == 0
    missing = "all" if is_single else one_of(*["never"] * 5, *["all"] * 3, "some", "doubled")
    # Without labels, nothing distinguishes a panel of several parts from several panels.
    parts = one_of(*_PARTS) if is_single or missing == "never" else (1, 1)
    shared, low = bool(rng.integers(5) == 0), int(rng.integers(0, 20))
    contents = one_of(*["mixed"] * 3, "plots", "photographs", "photographs")
    return Stratum(
        rows=((1,),) if is_single else MANY if rng.integers(12) == 0 else (),
        gap_px=one_of(None, None, (low, low + 16)),
        margin_px=one_of((0, 0), (0, 30)),
        contents=contents,
        background=("white",) if rng.integers(5) else ("black", "#202020", "#e8e8e8"),
        systems=("upper", "upper", "lower", "roman", "numbered", "digits"),
        settings=("{}", "{}", "({})", "{})", "{}."),
        paper=("none", "none", "white", "black"),
        missing=missing,
        inset=bool(rng.integers(6) == 0),
        parts=parts,
        shared=shared,
        quality=(30, 97),
    )
