"""Compare the layouts of drawn figures with those of published ones, counted by hand.

    python benchmarks/compound_layouts.py ../shared/data [--strata print plain …] [--figures 50]

The published ones are those of Zou et al. (``cases/zou_panels_train.csv``), without images, and the
newer ones of ``cases/panels.jsonl`` and ``benchmarks/gold``. Only figures of two panels and more
count. Gaps and labels are in per cent of the figure's width: drawn
figures are larger than those of 2013.
"""

import argparse
import csv
import json
import string
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from biovl.images.boxes import Box, overlap
from biovl.images.matching import reading_order
from biovl.sample.compound.figures import make_compound
from biovl.sample.compound.strata import STRATA

Panel = tuple[str | None, Box, Box | None]
_SHARES = (5, 25, 50, 75, 95)
_FIRST_SEED = 60_000
GOLD = Path(__file__).parent / "gold" / "panels.jsonl"


@dataclass(frozen=True)
class Layout:
    """The panels of a figure: label, box, label box."""

    panels: list[Panel]

    def gaps(self) -> list[float]:
        """Return each panel's distance to the nearest other one; 0 if they touch or overlap."""
        boxes = [box for _, box, _ in self.panels]
        return [
            min(_apart(box, other) for number, other in enumerate(boxes) if number != at)
            for at, box in enumerate(boxes)
        ]


def published(path: Path) -> list[Layout]:
    """Return the layouts of compound figures counted by hand."""
    figures: dict[str, list[Panel]] = defaultdict(list)
    with path.open() as lines:
        for name, x0, y0, x1, y1, _, *rest in csv.reader(lines):
            at = Box(*map(float, rest[:4])) if rest[0] else None
            box = Box(*map(float, (x0, y0, x1, y1)))
            figures[name].append((rest[4] or None, box, at))
    return [Layout(panels) for panels in figures.values() if len(panels) > 1]


def annotated(paths: Iterable[Path]) -> list[Layout]:
    """Return the layouts of compound figures of the benchmark."""
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    layouts = [
        Layout(
            [
                (
                    one["label"],
                    Box(*one["box"]),
                    Box(*one["label_box"]) if one["label_box"] else None,
                )
                for one in line["panels"]
            ]
        )
        for line in lines
        if not line.get("damaged")
    ]
    return [layout for layout in layouts if len(layout.panels) > 1]


def drawn(strata: Iterable[str], figures: int) -> list[Layout]:
    """Return the layouts of drawn figures."""
    layouts = []
    for stratum in strata:
        for seed in range(_FIRST_SEED, _FIRST_SEED + figures):
            figure = make_compound(seed, stratum)
            if len(figure.panels) > 1:
                panels = [(p.label, p.box, p.label_box) for p in figure.panels]
                layouts.append(Layout(panels))
    return layouts


def statistics(layouts: list[Layout]) -> dict[str, str]:
    """Return shares, and the quantiles 5, 25, 50, 75 and 95 %, as text."""
    every = [panel for layout in layouts for panel in layout.panels]
    width_of = [_extent(layout)[0] for layout in layouts for _ in layout.panels]
    counts = Counter(min(len(layout.panels), 7) for layout in layouts)
    gaps = [layout.gaps() for layout in layouts]
    named = [
        (box, at, label, width)
        for (label, box, at), width in zip(every, width_of, strict=True)
        if at and label
    ]
    places = Counter(_place(box, at) for box, at, *_ in named)
    extents = [_extent(layout) for layout in layouts]
    insets = sum(_has_inset(layout) for layout in layouts)
    in_order = [is_right for one in layouts if (is_right := _is_in_order(one)) is not None]
    shares = {f"{n} panels" if n < 7 else "7 or more": counts[n] for n in range(2, 8)}
    table = {name: f"{count / len(layouts):.2f}" for name, count in shares.items()}
    table |= {
        "width px": _quantiles([width for width, _ in extents]),
        "height over width": _quantiles([height / width for width, height in extents]),
        "gap %": _quantiles(
            [100 * g / w for g, w in zip((g for one in gaps for g in one), width_of, strict=True)]
        ),
        "all gaps up to 2 px": f"{np.mean([max(one) <= 2 for one in gaps]):.2f}",
        "with an inset": f"{insets / len(layouts):.3f}",
        "labels A, B, C … in reading order": f"{np.mean(in_order):.3f} of {len(in_order):,}",
        "panel width over height": _quantiles([b.width / max(b.height, 1) for _, b, _ in every]),
        "panel area of the figure's": _quantiles(
            [
                box.area / (width * height)
                for layout, (width, height) in zip(layouts, extents, strict=True)
                for _, box, _ in layout.panels
            ]
        ),
        "largest over smallest panel": _quantiles(
            [
                max(b.area for _, b, _ in one.panels)
                / max(min(b.area for _, b, _ in one.panels), 1)
                for one in layouts
            ]
        ),
        "panels without a label": f"{1 - len(named) / len(every):.2f}",
        "upper case": f"{np.mean([label.isupper() for _, _, label, _ in named]):.2f}",
        "one character": f"{np.mean([len(label) == 1 for _, _, label, _ in named]):.2f}",
        "label height %": _quantiles([100 * at.height / width for _, at, _, width in named]),
        "label from the sides %": _quantiles(
            [100 * _inset(box, at) / width for box, at, _, width in named]
        ),
    }
    for place in ("left top", "left bottom", "middle bottom", "right bottom", "right top"):
        table[f"label {place}"] = f"{places[place] / max(len(named), 1):.2f}"
    return table


def _quantiles(values: list[float]) -> str:
    return " ".join(f"{v:.2g}" if v < 10 else f"{v:.0f}" for v in np.percentile(values, _SHARES))


def _apart(one: Box, other: Box) -> float:
    across = max(one.x0 - other.x1, other.x0 - one.x1, 0.0)
    down = max(one.y0 - other.y1, other.y0 - one.y1, 0.0)
    return float(np.hypot(across, down))


def _extent(layout: Layout) -> tuple[float, float]:
    boxes = [box for _, box, _ in layout.panels]
    width = max(box.x1 for box in boxes) - min(box.x0 for box in boxes)
    return width, max(box.y1 for box in boxes) - min(box.y0 for box in boxes)


def _has_inset(layout: Layout) -> bool:
    boxes = [box for _, box, _ in layout.panels]
    return any(
        a is not b and overlap(a, b) >= 0.9 * a.area and a.area < b.area
        for a in boxes
        for b in boxes
    )


def _is_in_order(layout: Layout) -> bool | None:
    """Return whether labels follow the reading order; None if they are not all of A, B, C …."""
    labels = [(label or "").lower() for label, *_ in layout.panels]
    if sorted(labels) != list(string.ascii_lowercase[: len(labels)]):
        return None
    order = reading_order([box for _, box, _ in layout.panels])
    return [labels[at] for at in order] == sorted(labels)


def _place(box: Box, at: Box) -> str:
    x, y = at.centre
    across = (x - box.x0) / max(box.width, 1)
    down = (y - box.y0) / max(box.height, 1)
    return f"{_third(across, 'left', 'right')} {_third(down, 'top', 'bottom')}"


def _third(share: float, low: str, high: str) -> str:
    return low if share < 1 / 3 else high if share > 2 / 3 else "middle"


def _inset(box: Box, at: Box) -> float:
    across = min(abs(at.x0 - box.x0), abs(box.x1 - at.x1))
    return min(across, abs(at.y0 - box.y0), abs(box.y1 - at.y1))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path, help="folder with cases/")
    parser.add_argument("--strata", nargs="+", default=["print"], choices=STRATA)
    parser.add_argument("--figures", type=int, default=200, help="drawn for each stratum")
    options = parser.parse_args()
    folder = options.shared / "cases"
    columns = {
        "Zou": published(folder / "zou_panels_train.csv"),
        "cases and gold": annotated([folder / "panels.jsonl", GOLD]),
        f"drawn: {', '.join(options.strata)}": drawn(options.strata, options.figures),
    }
    print("| | " + " | ".join(columns) + " |\n| --- | --- | --- | --- |")
    print("| figures | " + " | ".join(str(len(layouts)) for layouts in columns.values()) + " |")
    tables = [statistics(layouts) for layouts in columns.values()]
    for name in tables[0]:
        print(f"| {name} | " + " | ".join(table[name] for table in tables) + " |")


if __name__ == "__main__":
    main()
