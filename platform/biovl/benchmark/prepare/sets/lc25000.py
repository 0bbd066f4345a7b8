"""LC25000: lung and colon tissue in class folders.

Source: Borkowski et al. 2019, arXiv:1912.12142.
"""

import functools
import posixpath
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from biovl.benchmark.prepare.class_folders import classes_of
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout

_FOLDERS = {
    "lung": {
        "lung adenocarcinomas": ("lung_aca",),
        "normal lung tissue": ("lung_n",),
        "lung squamous cell carcinomas": ("lung_scc",),
    },
    "colon": {
        "colon adenocarcinomas": ("colon_aca",),
        "normal colonic tissue": ("colon_n",),
    },
}
"""Folders by class; the names of the classes are those of BiomedCLIP's prompts."""

NO_CLASS = "not in a class folder"


def _about(organ: Literal["lung", "colon"], count: int) -> SetAbout:
    folders = [folder for names in _FOLDERS[organ].values() for folder in names]
    return SetAbout(
        title=f"LC25000, {organ} tissue: {len(folders)} classes",
        files=("LC25000.zip (or archive.zip), or its folders", *folders),
        get="github.com/tampapath/lung_colon_image_set",
        size="1.8 GB",
        licence="free to use with citation (stated by the authors)",
        citation="Borkowski et al. 2019, arXiv:1912.12142",
        papers={"BiomedCLIP, table 1": {"test": count}},
        differs="None known. The 25,000 images are augmentations of 1,250; there are no splits.",
        settings={"organ": organ},
    )


SETS = {"lc25000_lung": _about("lung", 15_000), "lc25000_colon": _about("colon", 10_000)}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader."""

    organ: Literal["lung", "colon"]
    """Which of the two benchmarks is read."""


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return the images of one organ; all are test images.

    Raises:
        SourceError: If a class folder is missing.
    """
    folders = _FOLDERS[config.organ]
    class_of, others = classes_of(raw, folders)
    known = {folder for names in _FOLDERS.values() for part in names.values() for folder in part}
    strange = [name for name in others if not known & set(name.lower().split("/"))]
    rows = [
        Example(
            id="/".join(name.split("/")[-2:]),
            path=posixpath.basename(name),
            read=functools.partial(raw.read, name),
            values={"label": label},
        )
        for name, label in class_of.items()
    ]
    return RawSet(
        holds="classes",
        columns={"label": pa.string()},
        splits={"test": rows},
        classes=tuple(folders),
        left_out={NO_CLASS: len(strange)} if strange else {},
    )
