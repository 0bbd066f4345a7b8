"""TCGA-TIL: patches of TCGA slides with or without tumour infiltrating lymphocytes.

Source:
    Kaczmarzyk et al. 2022, doi:10.5281/zenodo.6604094; Abousamra et al. 2022,
    doi:10.3389/fonc.2021.806603; Saltz et al. 2018, doi:10.1016/j.celrep.2018.03.086.
"""

import functools
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from biovl.benchmark.datasets import SPLITS
from biovl.benchmark.prepare.class_folders import classes_of
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.benchmark.selection import split_named
from biovl.core.errors import SourceError

_FOLDERS = {
    "none": ("til-negative", "negative", "tils-negative"),
    "tumor infiltrating lymphocytes": ("til-positive", "positive", "tils-positive"),
}
"""Folders by class; the names of the classes are those of BiomedCLIP's prompts."""

_LISTED = "images-tcga-tils-metadata.csv"
_BARCODE = 12
"""Length of a TCGA patient barcode: ``TCGA-05-4244``."""

NOT_FOUND = f"in {_LISTED}, but without an image"

SETS = {
    "tcga_til": SetAbout(
        title="TCGA-TIL: tumour infiltrating lymphocytes in a patch or not, lung adenocarcinoma",
        files=("TCGA-TILs.tar.gz, or images-tcga-tils/ and its metadata table",),
        get="zenodo.org/records/6604094",
        size="some GB, 304,097 patches",
        licence="CC-BY-4.0",
        citation="Kaczmarzyk et al. 2022, doi:10.5281/zenodo.6604094; Abousamra et al. 2022; "
        "Saltz et al. 2018",
        papers={"BiomedCLIP, table 1": {"test": 2_480}},
        differs="BiomedCLIP cites Saltz et al. 2018 and reports 2,480 patches of 500x500 pixels "
        "from lung adenocarcinoma, 5.9 % positive; they are not published as a set. This release "
        "has patches of 100x100 pixels with splits by slide; its LUAD test split has another "
        "count and share of positives. reader.study=pancancer is all cancers.",
    )
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader."""

    study: str = "luad"
    """Folder of a cancer in images-tcga-tils/, or ``pancancer``: all of them."""


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return the patches of the study, from ``STUDY/SPLIT/CLASS/*.png``.

    Without such folders, all images are test images.

    Raises:
        SourceError: If a class or the study is missing.
    """
    study = config.study.lower()
    class_of, _ = classes_of(raw, _FOLDERS)
    place_of = {name: _place(name) for name in class_of}
    studies = sorted({own for own, _ in place_of.values() if own})
    if studies and study not in studies:
        raise SourceError(
            f"{raw.folder} has no study {study!r}, only {', '.join(studies)}: set reader.study"
        )
    chosen = {name: split for name, (own, split) in place_of.items() if own in (study, "")}
    missing = _count_missing(raw, study, chosen) if studies else 0
    splits: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for name, split in chosen.items():
        barcode = posixpath.basename(name)[:_BARCODE]
        splits[split].append(
            Example(
                id="/".join(name.split("/")[-3:]),
                path=posixpath.basename(name),
                read=functools.partial(raw.read, name),
                values={
                    "label": class_of[name],
                    "group": barcode if barcode.startswith("TCGA-") else None,
                },
            )
        )
    return RawSet(
        holds="classes",
        columns={"label": pa.string(), "group": pa.string()},
        splits=splits,
        classes=tuple(_FOLDERS),
        left_out={NOT_FOUND: missing} if missing else {},
    )


def _count_missing(raw: RawFiles, study: str, chosen: Iterable[str]) -> int:
    """Return how many images the table lists for a study were not found."""
    name = raw.named(_LISTED)
    if name is None:
        return 0
    rows = raw.table(name, ["path"])
    listed = {"/".join(row["path"].replace("\\", "/").split("/")[-4:]) for row in rows}
    existing = {"/".join(one.split("/")[-4:]) for one in chosen}
    return sum(path.split("/")[0].lower() == study for path in listed - existing)


def _place(name: str) -> tuple[str, str]:
    """Return study and split of ``…/STUDY/SPLIT/CLASS/FILE``; no study and test without them."""
    parts = name.lower().split("/")[:-2]
    split = split_named(parts[-1]) if parts else None
    if split is None:
        return "", "test"
    return (parts[-2] if len(parts) > 1 else ""), split
