"""MedMNIST's npz files, in any of their sizes.

Source: Yang et al. 2023, MedMNIST v2, doi:10.1038/s41597-022-01721-8; ``medmnist.INFO`` 3.0.
"""

import functools
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from biovl.benchmark.datasets import SPLITS
from biovl.benchmark.datasets.medmnist import CLASSES
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.benchmark.stored_images import array_names, open_array, png
from biovl.core.errors import ArtifactError, SourceError

_SIZES = ("_224", "_128", "_64", "")
_AT_ONCE = 256
"""Images that are read from the file at a time."""

_ORGANS = (
    *("bladder", "left femur", "right femur", "heart", "left kidney", "right kidney", "liver"),
    *("left lung", "right lung", "pancreas", "spleen"),
)
_FINDINGS = (
    *("atelectasis", "cardiomegaly", "effusion", "infiltration", "mass", "nodule", "pneumonia"),
    *("pneumothorax", "consolidation", "edema", "emphysema", "fibrosis", "pleural", "hernia"),
)
_NAMES: Mapping[str, tuple[str, ...]] = {
    **CLASSES,
    **dict.fromkeys(("organamnist", "organcmnist", "organsmnist"), _ORGANS),
    "chestmnist": _FINDINGS,
}


@dataclass(frozen=True)
class _Flag:
    about: str
    counts: tuple[int, int, int]
    licence: str = "CC-BY-4.0"


_FLAGS = {
    "bloodmnist": _Flag("BloodMNIST: blood cells", (11_959, 1_712, 3_421)),
    "breastmnist": _Flag("BreastMNIST: breast ultrasound", (546, 78, 156)),
    "chestmnist": _Flag("ChestMNIST: findings on chest radiographs", (78_468, 11_219, 22_433)),
    "dermamnist": _Flag("DermaMNIST: lesions of HAM10000", (7_007, 1_003, 2_005), "CC-BY-NC-4.0"),
    "octmnist": _Flag("OCTMNIST: retinal OCT", (97_477, 10_832, 1_000)),
    "organamnist": _Flag("OrganAMNIST: organs in axial CT", (34_561, 6_491, 17_778)),
    "organcmnist": _Flag("OrganCMNIST: organs in coronal CT", (12_975, 2_392, 8_216)),
    "organsmnist": _Flag("OrganSMNIST: organs in sagittal CT", (13_932, 2_452, 8_827)),
    "pathmnist": _Flag("PathMNIST: colorectal tissue", (89_996, 10_004, 7_180)),
    "pneumoniamnist": _Flag("PneumoniaMNIST: chest radiographs of children", (4_708, 524, 624)),
    "retinamnist": _Flag("RetinaMNIST: diabetic retinopathy of DeepDRiD", (1_080, 120, 400)),
    "tissuemnist": _Flag("TissueMNIST: kidney cells", (165_466, 23_640, 47_280)),
}

_OF_BENCHMARKS = {"ham10000": "dermamnist", "deepdrid": "retinamnist"}
"""Files by the names of BIOMEDICA's benchmarks."""

_DIFFERS = {
    "breastmnist": "BIOMEDICA does not state which size and split it used.",
    "ham10000": "BIOMEDICA takes it from MedMNIST, without stating size and split.",
    "deepdrid": "BIOMEDICA takes it from MedMNIST, with 4 classes that it does not name; here all "
    "5 grades.",
}


def _about(name: str) -> SetAbout:
    flag = _OF_BENCHMARKS.get(name, name)
    item = _FLAGS[flag]
    return SetAbout(
        title=item.about,
        files=(f"{flag}_224.npz (or another size: {flag}.npz, _64, _128)",),
        get="zenodo.org/records/10519652 (medmnist.com)",
        size="by file, up to 13 GB",
        licence=item.licence,
        citation="Yang et al. 2023, doi:10.1038/s41597-022-01721-8, and the source of the images",
        papers={"MedMNIST 3": dict(zip(SPLITS, item.counts, strict=True))},
        differs=_DIFFERS.get(name, ""),
        settings={"flag": flag},
    )


SETS = {name: _about(name) for name in (*_FLAGS, *_OF_BENCHMARKS)}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader."""

    flag: str
    """Name of the file without its size, such as ``breastmnist``."""
    size: int = 0
    """Side of the images in pixels: 28, 64, 128 or 224; 0: the largest whose file is there."""

    def __post_init__(self) -> None:
        if self.flag not in _FLAGS:
            raise ValueError(f"flag: expected one of {', '.join(_FLAGS)}, got {self.flag!r}")
        if self.size not in (0, 28, 64, 128, 224):
            raise ValueError(f"size: expected 28, 64, 128, 224 or 0, got {self.size}")


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return the splits of an npz file.

    Raises:
        SourceError: If the file is missing or damaged, or labels do not match the images.
    """
    flag, size = config.flag, config.size
    sizes = _SIZES if not size else ("" if size == 28 else f"_{size}",)
    names = [raw.named(f"{flag}{suffix}.npz") for suffix in sizes]
    name = next(filter(None, names), None)
    if name is None:
        raise raw.missing(" or ".join(f"{flag}{suffix}.npz" for suffix in sizes))
    path, classes = raw.local_path(name), _NAMES[flag]
    try:
        arrays = array_names(str(path.parent), path.name)
        present = [split for split in SPLITS if f"{split}_images" in arrays]
        splits = {split: _Images(raw, name, path, split, classes) for split in present}
    except ArtifactError as error:
        raise raw.damaged(name, error) from error
    if "test" not in splits:
        raise SourceError(f"{raw.folder}/{name} has no test_images, only {', '.join(arrays)}")
    is_multiple = flag == "chestmnist"
    return RawSet(
        holds="findings" if is_multiple else "classes",
        columns=dict.fromkeys(classes, pa.int8()) if is_multiple else {"label": pa.string()},
        splits=splits,
        classes=classes,
    )


class _Images:
    """Images of a split, read in blocks from a stream."""

    def __init__(
        self, raw: RawFiles, name: str, path: Path, split: str, classes: tuple[str, ...]
    ) -> None:
        self._raw, self._name, self._split, self._classes = raw, name, split, classes
        self._folder, self._file = str(path.parent), path.name
        is_multiple = classes is _FINDINGS
        where = f"{raw.folder}/{name}: {split}"
        with self._array("images") as (_, self._shape, dtype):
            is_image = len(self._shape) == 3 or (len(self._shape) == 4 and self._shape[3] in (1, 3))
            if not is_image or dtype != np.uint8:
                raise SourceError(f"{where}_images is {dtype} {self._shape}, expected images uint8")
        try:
            with np.load(path, allow_pickle=False) as arrays:
                values = arrays[f"{split}_labels"]
        except (KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise raw.damaged(name, error) from error
        shape, width = values.shape, len(classes) if is_multiple else 1
        if values.size != self._shape[0] * width:
            raise SourceError(
                f"{where} has {self._shape[0]:,} images and labels of shape {shape}, expected "
                f"{width} for each image"
            )
        highest = 1 if is_multiple else len(classes) - 1
        if len(values) and not (values.min() >= 0 and values.max() <= highest):
            raise SourceError(
                f"{where}_labels are {values.min()} to {values.max()}, expected 0 to {highest}"
            )
        self._label_NK = values.astype(np.int64).reshape(-1, width)

    def _array(self, key: str) -> AbstractContextManager[tuple[Any, tuple[int, ...], Any]]:
        return open_array(self._folder, self._file, f"{self._split}_{key}")

    def __len__(self) -> int:
        return self._shape[0]

    def __iter__(self) -> Iterator[Example]:
        size = int(np.prod(self._shape[1:]))
        with self._array("images") as (stream, _, _):
            for start in range(0, len(self), _AT_ONCE):
                count = min(_AT_ONCE, len(self) - start)
                try:
                    data = stream.read(count * size)
                except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                    raise self._raw.damaged(self._name, error) from error
                if len(data) < count * size:
                    raise self._raw.damaged(self._name, EOFError(f"{self._split}_images is short"))
                block = np.frombuffer(data, np.uint8).reshape(count, *self._shape[1:])
                for row, pixels in enumerate(block, start):
                    yield Example(
                        id=f"{self._split}/{row:06}",
                        path=f"{row:06}.png",
                        read=functools.partial(png, pixels),
                        values=self._values(row),
                    )

    def _values(self, row: int) -> dict[str, object]:
        states = self._label_NK[row].tolist()
        if self._classes is _FINDINGS:
            return dict(zip(self._classes, states, strict=True))
        return {"label": self._classes[states[0]]}
