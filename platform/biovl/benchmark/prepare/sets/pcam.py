"""PatchCamelyon: HDF5 files of images and labels, gzipped as distributed or not.

Source: Veeling et al. 2018, arXiv:1806.03962; github.com/basveeling/pcam.
"""

import functools
import gzip
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa

from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.benchmark.stored_images import png
from biovl.core.errors import SourceError

CLASSES = ("normal lymph node", "lymph node metastasis")
"""Classes 0 and 1, named as in BiomedCLIP's prompts: 1 is a centre with tumour tissue."""

_SPLITS = {"train": "train", "val": "valid", "test": "test"}
_STEM = "camelyonpatch_level_2_split_"
_AT_ONCE = 256
"""Images that are read from the file at a time."""

SETS = {
    "pcam": SetAbout(
        title="PatchCamelyon: metastasis in the centre of a lymph node patch or not",
        files=(
            *(f"{_STEM}{split}_{part}.h5.gz" for split in _SPLITS.values() for part in "xy"),
            f"optionally {_STEM}*_meta.csv (slides, for the check of splits)",
        ),
        get="zenodo.org/records/2546921 (linked from github.com/basveeling/pcam)",
        size="8 GB",
        licence="CC0-1.0",
        citation="Veeling et al. 2018, arXiv:1806.03962; Ehteshami Bejnordi et al. 2017",
        papers={"BiomedCLIP, table 1": {"train": 262_144, "val": 32_768, "test": 32_768}},
        differs="None known: the published splits and labels.",
    )
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader: it has none."""


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return the splits whose files exist; test is required.

    Raises:
        SourceError: If files are missing or damaged, or images and labels do not match.
    """
    splits: dict[str, _Patches] = {}
    for split, stem in _SPLITS.items():
        names = [
            raw.named(f"{_STEM}{stem}_{part}.h5", f"{_STEM}{stem}_{part}.h5.gz") for part in "xy"
        ]
        if not any(names) and split != "test":
            raw.warn(f"{_STEM}{stem}_x.h5 and _y.h5 were not found: no {split} images")
            continue
        for part, name in zip("xy", names, strict=True):
            if name is None:
                raise raw.missing(f"{_STEM}{stem}_{part}.h5 or .h5.gz")
        slides = _slides(raw, stem)
        splits[split] = _Patches(raw, split, str(names[0]), str(names[1]), slides)
        if slides and not splits[split].has_slides:
            raw.warn(
                f"{_STEM}{stem}_meta.csv has {len(slides):,} rows for {len(splits[split]):,} "
                f"images: the slides of {split} are not known"
            )
    has_slides = any(patches.has_slides for patches in splits.values())
    return RawSet(
        holds="classes",
        columns={"label": pa.string(), **({"group": pa.string()} if has_slides else {})},
        splits=splits,
        classes=CLASSES,
    )


def _slides(raw: RawFiles, stem: str) -> list[str]:
    name = raw.named(f"{_STEM}{stem}_meta.csv")
    return [] if name is None else [row["wsi"] for row in raw.table(name, ["wsi"])]


class _Patches:
    """Rows of a split, read from the files in blocks."""

    def __init__(
        self, raw: RawFiles, split: str, images: str, labels: str, slides: list[str]
    ) -> None:
        self._raw, self._split, self._name = raw, split, images
        self._path = _unpacked(raw, images)
        with _opened(raw, images, self._path) as file:
            stored = _dataset(raw, images, file, "x")
            self._shape, dtype = stored.shape, stored.dtype
        with _opened(raw, labels, _unpacked(raw, labels)) as file:
            try:
                values = np.asarray(_dataset(raw, labels, file, "y")).reshape(-1)
            except OSError as error:
                raise raw.damaged(labels, error) from error
        if len(self._shape) != 4 or self._shape[3] != 3 or dtype != np.uint8:
            raise SourceError(
                f"{raw.folder}/{images}: x is {dtype} {self._shape}, expected uint8 [N, H, W, 3]"
            )
        if len(values) != self._shape[0]:
            raise SourceError(
                f"{raw.folder}/{images} has {self._shape[0]:,} images and {labels} "
                f"{len(values):,} labels: they are not of the same download"
            )
        strange = sorted(set(np.unique(values).tolist()) - {0, 1})
        if strange:
            raise SourceError(f"{raw.folder}/{labels} has labels {strange[:5]}, expected 0 and 1")
        self._label_N = values.astype(np.int64)
        self._slides = slides if len(slides) == len(values) else []

    @property
    def has_slides(self) -> bool:
        return bool(self._slides)

    def __len__(self) -> int:
        return len(self._label_N)

    def __iter__(self) -> Iterator[Example]:
        with _opened(self._raw, self._name, self._path) as file:
            stored = _dataset(self._raw, self._name, file, "x")
            for start in range(0, len(self), _AT_ONCE):
                try:
                    block = np.asarray(stored[start : start + _AT_ONCE])
                except OSError as error:
                    raise self._raw.damaged(self._name, error) from error
                for row, pixels in enumerate(block, start):
                    yield self._example(row, pixels)

    def _example(self, row: int, pixels: np.ndarray) -> Example:
        values = {"label": CLASSES[self._label_N[row]]}
        if self._slides:
            values["group"] = self._slides[row]
        return Example(
            id=f"{self._split}/{row:06}",
            path=f"{row:06}.png",
            read=functools.partial(png, pixels),
            values=values,
        )


def _unpacked(raw: RawFiles, name: str) -> Path:
    path = raw.local_path(name)
    if not name.lower().endswith(".gz"):
        return path
    target = raw.scratch() / "unpacked.h5"
    try:
        with gzip.open(path) as source, open(target, "wb") as stream:
            shutil.copyfileobj(source, stream, 1 << 20)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise raw.damaged(name, error) from error
    return target


def _opened(raw: RawFiles, name: str, path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise raw.damaged(name, error) from error


def _dataset(raw: RawFiles, name: str, file: h5py.File, key: str) -> h5py.Dataset:
    if key not in file:
        raise SourceError(f"{raw.folder}/{name} has no {key}, only {', '.join(file)}")
    return file[key]
