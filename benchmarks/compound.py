"""One table of how well compound figures are taken apart: panels, labels, captions, citances.

    python benchmarks/compound.py                               # drawn figures alone
    python benchmarks/compound.py --shared ../shared/data --out /tmp/compound

Panels are found end to end: labels are read in the image, the caption's labels are known. ``alone``
leaves the read labels out, ``given`` takes the true ones. With ``--out`` the table is written there
as Markdown, and a picture of drawn figures that fail, stratum by stratum.
"""

import argparse
import hashlib
import io
import json
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from biovl.articles.subcaptions.splitting import split_caption
from biovl.images.boxes import Box, PanelFound
from biovl.images.labels.reading import Label, read_labels
from biovl.images.matching import match
from biovl.images.panels.splitting import split_figure
from biovl.sample.compound.figures import make_compound
from biovl.sample.compound.metrics import (
    Counts,
    Scored,
    alignment_counts,
    average_precision,
    box_counts,
    imageclef_accuracy,
)
from biovl.sample.compound.strata import STRATA

COLUMNS = (
    *("figures", "F1@.5", "mAP@.5", "ImageCLEF", "count exact", "all right", "alignment F1"),
    *("F1 alone", "F1 given", "split ms", "read ms"),
)
_CELL, _PICTURES = 300, 4
_NONE = Counts(0, 0, 0)


@dataclass(frozen=True)
class Case:
    """A figure and its true panels."""

    name: str
    pixels: np.ndarray
    caption: str
    panels: tuple[tuple[str | None, Box, Box | None], ...]
    """Label, box, label box."""

    @property
    def boxes(self) -> list[Box]:
        return [box for _, box, _ in self.panels]

    @property
    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for label, _, _ in self.panels if label))


@dataclass
class Table:
    """The sums of one set of figures."""

    figures: int = 0
    panels: Counts = _NONE
    alone: Counts = _NONE
    given: Counts = _NONE
    alignment: Counts = _NONE
    accuracy: float = 0.0
    exact: int = 0
    right: int = 0
    split_s: float = 0.0
    read_s: float = 0.0
    ranked: list[tuple[list[Scored], list[Box]]] = field(default_factory=list)
    failed: list[tuple[Case, list[PanelFound]]] = field(default_factory=list)

    def add(self, case: Case) -> None:
        """Take one figure apart, and count."""
        expected = split_caption(case.caption).labels() if case.caption else tuple(case.labels)
        start = time.process_time()
        labels = read_labels(case.pixels, expected=expected)
        read = time.process_time()
        found = split_figure(case.pixels, labels=labels, expected=expected)
        self.read_s += read - start
        self.split_s += time.process_time() - read
        counts = box_counts([panel.box for panel in found], case.boxes)
        self.figures += 1
        self.panels += counts
        self.accuracy += imageclef_accuracy([panel.box for panel in found], case.boxes)
        self.exact += counts.found == counts.true
        self.right += counts.hits == counts.found == counts.true
        self.ranked.append(([Scored(p.box, p.confidence) for p in found], case.boxes))
        named = [(panel.label, panel.panel.box) for panel in match(found, expected).panels]
        self.alignment += alignment_counts(named, [(name, box) for name, box, _ in case.panels])
        true = [Label(name, at, 0.9) for name, _, at in case.panels if name and at]
        for labels, attribute in (([], "alone"), (true, "given")):
            boxes = [p.box for p in split_figure(case.pixels, labels=labels, expected=expected)]
            setattr(self, attribute, getattr(self, attribute) + box_counts(boxes, case.boxes))
        if counts.hits < max(counts.found, counts.true):
            self.failed.append((case, found))

    def row(self) -> list[str]:
        """Return the values of ``COLUMNS``."""
        many = max(self.figures, 1)
        shares = (
            *(self.panels.f1, average_precision(self.ranked), self.accuracy / many),
            *(self.exact / many, self.right / many, self.alignment.f1),
            *(self.alone.f1, self.given.f1),
        )
        times = (1000 * self.split_s / many, 1000 * self.read_s / many)
        return [str(self.figures), *(f"{v:.3f}" for v in shares), *(f"{v:.0f}" for v in times)]


def drawn(stratum: str, figures: int) -> Iterator[Case]:
    """Yield drawn figures. Their seeds begin where those used for training and trials end."""
    for seed in range(50_000, 50_000 + figures):
        figure = make_compound(seed, stratum)
        panels = tuple((panel.label, panel.box, panel.label_box) for panel in figure.panels)
        yield Case(f"{stratum} {seed}", figure.pixels, figure.caption, panels)


def published(shared: Path) -> Iterator[tuple[bool, Case]]:
    """Yield real figures with panels drawn by hand, and whether they are of the first half."""
    for line in (shared / "cases" / "panels.jsonl").read_text().splitlines():
        row = json.loads(line)
        with tarfile.open(shared / "packages" / f"{row['package']}.tar.gz") as archive:
            member = next(m for m in archive.getmembers() if Path(m.name).name == row["image"])
            stream = archive.extractfile(member)
            if stream is None:
                raise FileNotFoundError(f"{row['package']} has no file {row['image']}")
            pixels = np.asarray(Image.open(io.BytesIO(stream.read())).convert("RGB"))
        panels = tuple(
            (panel["label"], Box(*panel["box"]), Box(*panel["label_box"]))
            if panel["label_box"]
            else (panel["label"], Box(*panel["box"]), None)
            for panel in row["panels"]
        )
        is_first = hashlib.blake2b(row["package"].encode()).digest()[0] % 2 == 0
        yield is_first, Case(row["image"], pixels, row["caption"], panels)


def panel_tables(shared: Path | None, figures: int, strata: Sequence[str]) -> dict[str, Table]:
    """Return the counts by set of figures."""
    tables: dict[str, Table] = {}
    if shared:
        for is_first, case in published(shared):
            half = "published, first half" if is_first else "published, second half"
            tables.setdefault(half, Table()).add(case)
            tables.setdefault("published, goal's labels", Table()).add(
                Case(case.name, case.pixels, "", case.panels)
            )
    for stratum in strata:
        table = tables.setdefault(stratum, Table())
        for case in drawn(stratum, figures):
            table.add(case)
        print(stratum, *table.row(), file=sys.stderr, flush=True)
    return tables


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def text_tables(shared: Path) -> str:
    """Return what the benchmarks of captions, citances and labels say of the real cases."""
    import compound_captions
    import compound_citances
    import compound_labels

    parts = []
    for module in (compound_captions, compound_citances):
        scores: dict[str, dict[str, float]] = module.scores(shared)
        head = list(next(iter(scores.values())))
        rows = [[name, *(f"{row[key]:.3f}" for key in head)] for name, row in scores.items()]
        parts.append(markdown([module.__name__.removeprefix("compound_"), *head], rows))
    rows = []
    for name, (told, untold) in compound_labels.scores(shared, strata=()).items():
        values = (told.recall, told.precision, untold.recall, untold.precision)
        rows.append([name, *(f"{value:.3f}" for value in values), f"{told.cpu_ms:.0f}"])
    head = ["labels", "recall", "precision", "recall untold", "precision untold", "ms"]
    return "\n\n".join([*parts, markdown(head, rows)])


def pictures(tables: dict[str, Table], out: Path) -> None:
    """Draw the first failures of every drawn stratum: true panels green, found ones red."""
    for name, table in tables.items():
        if name in STRATA and table.failed:
            shown = table.failed[:_PICTURES]
            sheet = Image.new("RGB", (_CELL * len(shown), _CELL), "white")
            for number, (case, found) in enumerate(shown):
                sheet.paste(_drawn_over(case, found), (_CELL * number, 0))
            sheet.quantize(64).save(out / f"compound_{name}.png", optimize=True)


def _drawn_over(case: Case, found: Sequence[PanelFound]) -> Image.Image:
    height, width = case.pixels.shape[:2]
    scale = (_CELL - 8) / max(height, width)
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    image = Image.fromarray(case.pixels).resize(size)
    draw = ImageDraw.Draw(image)
    for box, colour, line in (
        *((box, "lime", 4) for box in case.boxes),
        *((panel.box, "red", 2) for panel in found),
    ):
        ends = (box.x0 * scale, box.y0 * scale, box.x1 * scale - 1, box.y1 * scale - 1)
        draw.rectangle(ends, outline=colour, width=line)
    return image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, help="folder with cases/ and packages/")
    parser.add_argument("--figures", type=int, default=20, help="drawn for each stratum")
    parser.add_argument("--strata", nargs="+", default=list(STRATA), choices=STRATA)
    parser.add_argument("--out", type=Path, help="folder for the table and pictures")
    options = parser.parse_args()
    tables = panel_tables(options.shared, options.figures, options.strata)
    rows = [[name, *table.row()] for name, table in tables.items()]
    text = markdown(["panels", *COLUMNS], rows)
    if options.shared:
        text += "\n\n" + text_tables(options.shared)
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "compound.md").write_text(text + "\n")
        pictures(tables, options.out)
        for name, table in tables.items():
            print(f"{name}: {', '.join(case.name for case, _ in table.failed) or 'none fail'}")


if __name__ == "__main__":
    main()
