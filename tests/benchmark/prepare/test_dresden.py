"""Dresden's frames and masks: in view by the mask, not in view by the weak labels."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from biovl.benchmark.prepare.sets import dresden
from biovl.core.errors import SourceError
from tests.benchmark.prepare.preparing import encoded, number_of, run, table

IN_VIEW, NOT_IN_VIEW = dresden.CLASSES[1], dresden.CLASSES[0]
# Surgeries 1 (train), 3 (val) and 2 (test); three frames of each.
SURGERIES, EACH = (1, 3, 2), 3


def mask(marked: bool) -> bytes:
    stream = io.BytesIO()
    pixels = np.zeros((16, 16), np.uint8)
    pixels[4:6, 4:6] = 255 * marked
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def weak(layout: str, states: dict[str, list[int]]) -> str:
    """Return the table of a folder, in one of the layouts."""
    names, count = list(states), EACH
    if layout == "structures are rows":
        lines = [",".join(["", *(f"image{n:02}.png" for n in range(count))])]
        lines += [",".join([name, *map(str, states[name])]) for name in names]
    elif layout == "no frame numbers":
        lines = [",".join(names)]
        lines += [",".join(str(states[name][n]) for name in names) for n in range(count)]
    else:
        lines = [",".join(["image", *names])]
        # Rows in another order than the frames.
        lines += [
            ",".join([f"{n:02}", *(str(states[name][n]) for name in names)])
            for n in reversed(range(count))
        ]
    return "\r\n".join(lines)


def write(raw: Path, layout: str = "frames are rows") -> None:
    """Write colon, liver and pancreas; of the liver's frames, number 1 shows the colon."""
    number = 0
    for folder in ("liver", "colon", "pancreas"):
        for surgery in SURGERIES:
            place = raw / "DSAD" / folder / f"{surgery:02}"
            place.mkdir(parents=True)
            for frame in range(EACH):
                (place / f"image{frame:02}.png").write_bytes(encoded(number))
                (place / f"mask{frame:02}.png").write_bytes(mask(True))
                number += 1
            visible = {name: [0] * EACH for name in dresden.STRUCTURES}
            visible |= {folder: [1] * EACH, "uterus": [0, 1, 0]}
            if folder == "liver":
                visible["colon"] = [0, 1, 0]
            (place / "weak_labels.csv").write_text(weak(layout, visible))
            (place / "merged").mkdir()
            (place / "merged/image00.png").write_bytes(encoded(250))


@pytest.mark.parametrize("layout", ["frames are rows", "structures are rows", "no frame numbers"])
def test_frames_are_in_view_by_mask_and_weak_label(tmp_path: Path, layout: str) -> None:
    write(tmp_path / "raw", layout)
    manifest = run("dresden_colon", tmp_path / "raw", tmp_path / "out", **{"reader.without": 0})
    assert manifest.counts == {"rows": 24, "train": 8, "val": 8, "test": 8, "left_out": {}}
    for split, surgery in (("train", 1), ("val", 3), ("test", 2)):
        for row in table(tmp_path / "out", split).to_pylist():
            folder, own, frame = row["id"].split("/")
            place = SURGERIES.index(surgery)
            first = EACH * place + 9 * ("liver", "colon", "pancreas").index(folder)
            assert number_of(row["image"]["bytes"]) == first + int(frame)
            assert int(own) == surgery
            assert row["label"] == (IN_VIEW if folder == "colon" else NOT_IN_VIEW)
            assert not (folder == "liver" and frame == "01")


def test_as_many_frames_without_the_structure_are_drawn(tmp_path: Path) -> None:
    write(tmp_path / "raw")
    manifest = run("dresden_colon", tmp_path / "raw", tmp_path / "out")
    assert manifest.notes["by_class"]["test"] == {IN_VIEW: 3, NOT_IN_VIEW: 3}
    assert manifest.counts["left_out"] == {dresden.NOT_DRAWN: 6}
    other = run("dresden_colon", tmp_path / "raw", tmp_path / "b", **{"reader.seed": 1})
    assert other.counts == manifest.counts
    assert table(tmp_path / "b") != table(tmp_path / "out")


def test_few_frames_without_the_structure_are_not_all_of_them(tmp_path: Path) -> None:
    write(tmp_path / "raw")
    manifest = run("dresden_colon", tmp_path / "raw", tmp_path / "out", **{"reader.without": 0.1})
    assert manifest.notes["by_class"]["test"] == {IN_VIEW: 3, NOT_IN_VIEW: 1}


def test_empty_and_missing_masks_and_weak_labels_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "raw")
    place = tmp_path / "raw/DSAD/colon/02"
    (place / "mask00.png").write_bytes(mask(False))
    (place / "mask01.png").unlink()
    (tmp_path / "raw/DSAD/liver/02/weak_labels.csv").unlink()
    manifest = run("dresden_colon", tmp_path / "raw", tmp_path / "out", **{"reader.without": 0})
    assert manifest.counts["left_out"] == {
        dresden.EMPTY_MASK: 1,
        dresden.NO_MASK: 1,
        dresden.NO_WEAK_LABEL: 3,
    }
    assert manifest.counts["test"] == 4


def test_missing_folders_and_tables_are_errors(tmp_path: Path) -> None:
    write(tmp_path / "raw")
    with pytest.raises(SourceError, match=r"spleen/NN/imageNN.png was not found.*figshare"):
        run("dresden_spleen", tmp_path / "raw", tmp_path / "out")
    path = tmp_path / "raw/DSAD/liver/02/weak_labels.csv"
    path.write_text("liver,colon\n1,0\n")
    with pytest.raises(SourceError, match="1 rows without frame numbers, and the folder has 3"):
        run("dresden_colon", tmp_path / "raw", tmp_path / "out")
    path.write_text("a,b\n1,0\n")
    with pytest.raises(SourceError, match="does not name colon"):
        run("dresden_colon", tmp_path / "raw", tmp_path / "out")
