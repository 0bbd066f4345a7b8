"""Measure the label reader on drawn figures of every stratum and, where they are, on real ones.

    python benchmarks/compound_labels.py                       # twenty figures of each stratum
    python benchmarks/compound_labels.py --shared ../shared/data --figures 40

A label is right if its text is (in the caption's case) and its centre lies within the true box,
grown by half its height: hands draw the boxes of labels some pixels larger or smaller.
"""

import argparse
import hashlib
import io
import json
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from biovl.images.boxes import Box
from biovl.images.labels.reading import Label, read_labels
from biovl.sample.compound.figures import make_compound
from biovl.sample.compound.strata import STRATA


@dataclass(frozen=True)
class Score:
    """How many labels were found, of how many, and what it took."""

    right: int
    found: int
    true: int
    figures: int
    cpu_s: float

    @property
    def recall(self) -> float:
        return self.right / self.true if self.true else 1.0

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 1.0

    @property
    def cpu_ms(self) -> float:
        """Of one figure."""
        return 1000 * self.cpu_s / max(self.figures, 1)


@dataclass(frozen=True)
class Case:
    """A figure, the labels its caption names, and those that are printed in it."""

    pixels: np.ndarray
    expected: tuple[str, ...]
    printed: tuple[tuple[str, Box], ...]


def scores(
    shared: Path | None = None, *, figures: int = 20, strata: Sequence[str] = STRATA
) -> dict[str, tuple[Score, Score]]:
    """Return for each set of figures the scores with the caption's labels, and without them.

    Args:
        shared: Folder with ``cases/panels.jsonl`` and ``packages``. The real figures are scored in
            two halves by package; the reader was made while looking at the first.
        figures: Drawn for each stratum.
        strata: Which to draw.
    """
    table = {}
    if shared:
        halves: dict[bool, list[Case]] = {True: [], False: []}
        for is_first, case in real_cases(shared):
            halves[is_first].append(case)
        table["real, first half"] = _both(halves[True])
        table["real, second half"] = _both(halves[False])
    for stratum in strata:
        table[stratum] = _both(list(drawn_cases(stratum, figures)))
    return table


def drawn_cases(stratum: str, figures: int) -> Iterator[Case]:
    """Yield drawn figures. Their seeds are none that anything is trained on."""
    for seed in range(10_000, 10_000 + figures):
        figure = make_compound(seed, stratum)
        printed = [(p.label, p.label_box) for p in figure.panels if p.label and p.label_box]
        yield Case(figure.pixels, figure.labels, tuple(printed))


def real_cases(shared: Path) -> Iterator[tuple[bool, Case]]:
    """Yield real figures with boxes drawn by hand, and whether they are of the first half."""
    for line in (shared / "cases" / "panels.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        printed = [
            (panel["label"], Box(*panel["label_box"]))
            for panel in row["panels"]
            if panel["label_box"]
        ]
        expected = tuple(panel["label"] for panel in row["panels"])
        is_first = hashlib.blake2b(row["package"].encode()).digest()[0] % 2 == 0
        yield is_first, Case(_image(shared, row["package"], row["image"]), expected, tuple(printed))


def _image(shared: Path, package: str, name: str) -> np.ndarray:
    with tarfile.open(shared / "packages" / f"{package}.tar.gz") as archive:
        member = next(m for m in archive.getmembers() if Path(m.name).name == name)
        stream = archive.extractfile(member)
        if stream is None:
            raise FileNotFoundError(f"{package} has no file {name}")
        return np.asarray(Image.open(io.BytesIO(stream.read())).convert("RGB"))


def _both(cases: Sequence[Case]) -> tuple[Score, Score]:
    return _score(cases, is_told=True), _score(cases, is_told=False)


def _score(cases: Sequence[Case], *, is_told: bool) -> Score:
    right = found = true = 0
    cpu = 0.0
    for case in cases:
        began = time.process_time()
        labels = read_labels(case.pixels, expected=case.expected if is_told else ())
        cpu += time.process_time() - began
        right += _matches(labels, case.printed)
        found, true = found + len(labels), true + len(case.printed)
    return Score(right, found, true, len(cases), cpu)


def _matches(labels: Sequence[Label], printed: Sequence[tuple[str, Box]]) -> int:
    free = list(printed)
    for label in labels:
        hit = next((p for p in free if p[0] == label.text and _near(label.box, p[1])), None)
        if hit:
            free.remove(hit)
    return len(printed) - len(free)


def _near(found: Box, true: Box) -> bool:
    x, y = found.centre
    room = true.height / 2 + 2
    return true.x0 - room <= x <= true.x1 + room and true.y0 - room <= y <= true.y1 + room


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--figures", type=int, default=20)
    parser.add_argument("--strata", nargs="*", default=STRATA)
    args = parser.parse_args()
    print("| figures | labels | recall | precision | recall untold | precision untold | CPU-ms |")
    print("|---|---|---|---|---|---|---|")
    for name, (told, untold) in scores(
        args.shared, figures=args.figures, strata=args.strata
    ).items():
        numbers = (told.recall, told.precision, untold.recall, untold.precision)
        cells = " | ".join(f"{number:.3f}" for number in numbers)
        print(f"| {name} | {told.true} | {cells} | {told.cpu_ms:.0f} |")


if __name__ == "__main__":
    main()
