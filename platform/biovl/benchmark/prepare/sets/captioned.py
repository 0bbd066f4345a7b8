"""Images with captions, often several: Flickr30k's files, and tables such as Quilt-1M's.

    flickr30k     dataset_flickr30k.json or flickr_annotations_30k.csv (Karpathy's splits), or
                  results_20130124.token or results.csv (no splits); images anywhere below
    biomed_flickr captions.csv (image, caption), or a JSON file like Karpathy's
    quilt_1m      quilt_1M_lookup.csv, or quilt_1m_train.csv and quilt_1m_val.csv: image_path,
                  caption, split; images in any folder or archive
    arch          books_set/captions.json and pubmed_set/captions.json: caption, uuid; images by
                  uuid in books_set/images and pubmed_set/images; no splits

A row is an image with all its captions: ``text`` is a list, ``caption_id`` names each of them.
"""

import json
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from biovl.benchmark import selection
from biovl.benchmark.datasets import SPLITS
from biovl.benchmark.prepare.annotation_files import NO_IMAGE, Described, NamedImages, read_json
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.core.errors import SourceError

SETS = {
    "flickr30k": SetAbout(
        title="Flickr30k: photographs with five captions each",
        files=(
            "dataset_flickr30k.json or flickr_annotations_30k.csv (Karpathy's splits), or "
            "results_20130124.token",
            "flickr30k-images/1000092795.jpg …",
        ),
        get="https://shannon.cs.illinois.edu/DenotationGraph (images), "
        "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip (splits); or "
        "both from https://huggingface.co/datasets/nlphuji/flickr30k",
        size="4.4 GB",
        licence="terms of Flickr; images for non-commercial research and education only",
        citation="Young et al. 2014, From image descriptions to visual denotations, "
        "doi:10.1162/tacl_a_00166; splits: Karpathy and Fei-Fei 2015, arXiv:1412.2306",
        papers={"Karpathy's splits": {"train": 29_000, "val": 1_014, "test": 1_000}},
    ),
    "biomed_flickr": SetAbout(
        title="BioMed-Flickr: biomedical photographs with captions",
        files=("captions.csv (image, caption)", "the images it names"),
        get="the authors of BIOMEDICA (arXiv:2501.07171, section 17); no download was found",
        size="7,000 images",
        licence="permissive licences of Flickr, by image",
        citation="Lozano et al. 2025, BIOMEDICA, arXiv:2501.07171",
        differs="the file format of the authors is not known: a table of captions is read",
        settings={"data": "biomed_flickr"},
    ),
    "quilt_1m": SetAbout(
        title="Quilt-1M: histopathology images with captions",
        files=(
            "quilt_1M_lookup.csv (caption, image_path, subset, split), or quilt_1m_val.csv",
            "the images, in quilt_1m/ or as images_part_1.zip …",
        ),
        get="https://zenodo.org/records/8239942 (request access)",
        size="36 GB, resized; 110 GB in full size",
        licence="Quilt-1M: research use only, no redistribution",
        citation="Ikezogwo et al. 2023, Quilt-1M: one million image-text pairs for histopathology, "
        "arXiv:2306.11207",
        differs="an image with several captions is one row: all of them count as correct",
        settings={"data": "quilt_1m"},
    ),
    "arch": SetAbout(
        title="ARCH: histopathology images of books and PubMed with captions",
        files=("books_set/captions.json, pubmed_set/captions.json", "images/ in both"),
        get="https://warwick.ac.uk/fac/cross_fac/tia/data/arch (books_set.zip, pubmed_set.zip)",
        size="about 2 GB",
        licence="CC-BY-NC-SA-4.0",
        citation="Gamper and Rajpoot 2021, Multiple instance captioning: learning representations "
        "from histopathology textbooks and articles, arXiv:2103.05121",
        differs="the download has fewer images than the paper's 15,164. Captions of several images "
        "are one text, which is correct for each of them",
        settings={"data": "arch"},
    ),
}

NO_TEXT = "no caption"
NO_NAME = "no image is named"

_FILES = {
    "flickr30k": (
        *("dataset_flickr30k.json", "flickr_annotations_30k.csv"),
        *("results_20130124.token", "results.csv"),
    ),
    "biomed_flickr": ("captions.csv", "captions.tsv", "captions.json"),
    "quilt_1m": ("quilt_1M_lookup.csv", "quilt_1m_val.csv", "quilt_1m_train.csv"),
}
_LISTS = "flickr_annotations_30k.csv"
"""The table of the hub: Karpathy's captions of an image as a JSON list."""
_ARCH = ("books_set/captions.json", "pubmed_set/captions.json")
_COLUMNS = (
    *(("image_path", "caption"), ("image", "caption"), ("filename", "caption")),
    ("image_name", "comment"),
)
"""Columns of images and captions that tables may have; the first two that exist are used."""
_REST_OF_VAL = "restval"
"""Karpathy's split of COCO that papers train on."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader: which data set, and which part of it."""

    data: Literal["flickr30k", "biomed_flickr", "quilt_1m", "arch"] = "flickr30k"
    """The data set."""
    splits: tuple[str, ...] = SPLITS
    """Splits to prepare."""
    subsets: tuple[str, ...] = ()
    """Quilt-1M: values of the column ``subset`` to prepare, such as ``quilt``; empty: all."""


@dataclass(kw_only=True)
class _Captioned:
    """An image with its captions so far."""

    name: str
    file: str
    split: str
    captions: dict[str, str] = field(default_factory=dict)
    """Caption ids by caption: equal ones are merged."""
    subset: str = ""


@dataclass(frozen=True, kw_only=True)
class _Caption:
    """A caption as published."""

    image: str
    caption: str
    split: str
    id: str = ""
    subset: str = ""


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return images and captions by split."""
    left_out, images = Counter[str](), NamedImages(raw)
    rows_of: dict[str, list[_Captioned]] = {}
    for row in _grouped(_captions(config, raw), images, left_out):
        split = _split(row.split)
        if split is None:
            left_out[f"the split is {row.split!r}"] += 1
        elif split not in config.splits:
            left_out[f"of the split {split}, which was not requested"] += 1
        else:
            rows_of.setdefault(split, []).append(row)
    images.warn(SETS[config.data].get)
    if not rows_of:
        said = " ".join(raw.warnings)
        raise SourceError(f"{raw.folder} has no image with a caption: {dict(left_out)}. {said}")
    _warn_of_counts(config, raw, rows_of)
    columns = {"text": pa.list_(pa.string()), "caption_id": pa.list_(pa.string())}
    if config.data == "quilt_1m":
        columns["subset"] = pa.string()
    return RawSet(
        holds="pairs",
        columns=columns,
        splits={
            split: Described(rows_of[split], partial(_example, raw))
            for split in SPLITS
            if split in rows_of
        },
        left_out=dict(sorted(left_out.items())),
    )


def _captions(config: Config, raw: RawFiles) -> list[_Caption]:
    if config.data == "arch":
        return [caption for part in _ARCH for caption in _of_arch(raw, part)]
    names = [name for own in _FILES[config.data] if (name := raw.named(own))]
    if not names:
        raise raw.missing(" or ".join(_FILES[config.data]))
    if config.data != "quilt_1m" or posixpath.basename(names[0]) == "quilt_1M_lookup.csv":
        names = names[:1]
    captions = list[_Caption]()
    for name in names:
        suffix = posixpath.splitext(name)[1]
        if suffix == ".json":
            captions += _of_json(raw, name)
        elif posixpath.basename(name).lower() == _LISTS:
            captions += _of_lists(raw, name)
        elif suffix == ".token":
            captions += _of_tokens(raw, name)
        else:
            captions += _of_table(config, raw, name)
    if all(caption.split == "test" for caption in captions):
        raw.warn(
            f"{posixpath.basename(names[0])} has no splits: all images are in test"
            + ". Papers use the 1,000 of dataset_flickr30k.json" * (config.data == "flickr30k")
        )
    return captions


def _warn_of_counts(config: Config, raw: RawFiles, rows_of: Mapping[str, list[_Captioned]]) -> None:
    """Warn of unusual numbers of captions per image."""
    counts = Counter(len(row.captions) for rows in rows_of.values() for row in rows)
    other = counts.total() - counts[5]
    if config.data == "flickr30k" and other:
        raw.warn(f"{other:,} images do not have five different captions")
    elif config.data != "flickr30k" and set(counts) != {1}:
        total = sum(number * count for number, count in counts.items())
        raw.warn(
            f"{total:,} captions of {counts.total():,} images: any caption of an image counts "
            "as correct in retrieval"
        )


def _of_table(config: Config, raw: RawFiles, name: str) -> Iterator[_Caption]:
    folders = reversed(name.split("/")[:-1])
    default = selection.split_of_file(name) or next(
        filter(None, map(selection.split_named, folders)), "test"
    )
    rows, image, caption = _table(raw, name)
    for number, row in enumerate(rows):
        subset = row.get("subset", "")
        if not config.subsets or subset in config.subsets:
            yield _Caption(
                image=row[image],
                caption=row[caption],
                split=row.get("split") or default,
                id=str(number),
                subset=subset,
            )


def _table(raw: RawFiles, name: str) -> tuple[list[dict[str, str]], str, str]:
    """Return the rows of a table, and its columns of images and captions."""
    errors = []
    for image, caption in _COLUMNS:
        try:
            rows = raw.table(name, [image, caption], keep=["split", "subset"])
            return rows, image, caption
        except SourceError as error:
            errors.append(error)
    raise errors[0]


def _split(name: str) -> str | None:
    return "train" if name.lower() == _REST_OF_VAL else selection.split_named(name.strip())


def _grouped(
    captions: Iterable[_Caption], images: NamedImages, left_out: Counter[str]
) -> list[_Captioned]:
    """Return images with their captions, in the order of the first one."""
    rows, files = dict[tuple[str, str], _Captioned](), dict[str, str | None]()
    for one in captions:
        name, caption = one.image.strip(), " ".join(one.caption.split())
        if not name or not caption:
            left_out[NO_TEXT if name else NO_NAME] += 1
            continue
        if name not in files:
            files[name] = images.find(name)
        file = files[name]
        if file is None:
            left_out[NO_IMAGE] += 1
            continue
        # An image may be named with its folder in one row, and without it in another one.
        row = rows.setdefault(
            (one.split, file),
            _Captioned(name=name, file=file, split=one.split, subset=one.subset),
        )
        row.captions.setdefault(caption, one.id or str(len(row.captions)))
    return list(rows.values())


def _of_json(raw: RawFiles, name: str) -> Iterator[_Caption]:
    """Yield captions in Karpathy's format: images with filename, split and sentences."""
    value = read_json(raw, name)
    images = value.get("images") if isinstance(value, dict) else None
    if not isinstance(images, list) or not all(isinstance(one, dict) for one in images):
        raise SourceError(
            f"{raw.folder}/{name} has no list of images: expected Karpathy's format, "
            '{"images": [{"filename": …, "split": …, "sentences": [{"raw": …}]}]}'
        )
    for image in images:
        file = "/".join(filter(None, (image.get("filepath"), image.get("filename"))))
        for number, sentence in enumerate(image.get("sentences") or ()):
            yield _Caption(
                image=file,
                caption=str(sentence.get("raw") or " ".join(sentence.get("tokens") or ())),
                split=str(image.get("split") or ""),
                id=str(sentence.get("sentid", number)),
            )


def _of_lists(raw: RawFiles, name: str) -> Iterator[_Caption]:
    """Yield captions of a table with a JSON list of them in each row."""
    rows = raw.table(name, ["raw", "filename", "split"], keep=["sentids"])
    for number, row in enumerate(rows, 2):
        try:
            captions, ids = json.loads(row["raw"]), json.loads(row.get("sentids") or "[]")
        except ValueError as error:
            raise raw.damaged(f"{name}, row {number}", error) from error
        for at, caption in enumerate(captions):
            own = str(ids[at]) if at < len(ids) else str(at)
            yield _Caption(image=row["filename"], caption=caption, split=row["split"], id=own)


def _of_arch(raw: RawFiles, part: str) -> Iterator[_Caption]:
    """Yield captions of one part of ARCH, whose images are called by their uuid."""
    name = next((file for file in raw.names if f"/{file}".endswith(f"/{part}")), None)
    if name is None:
        raise raw.missing(part)
    value = read_json(raw, name)
    rows = list(value.values()) if isinstance(value, dict) else []
    if not rows or not all(isinstance(row, dict) and "uuid" in row for row in rows):
        raise SourceError(f"{raw.folder}/{name}: expected captions with caption and uuid")
    folder = posixpath.dirname(name)
    files = {posixpath.splitext(posixpath.basename(f))[0]: f for f in raw.images(below=folder)}
    for row in rows:
        uuid = str(row["uuid"])
        file = files.get(uuid, f"{posixpath.dirname(part)}/images/{uuid}.png")
        caption = str(row.get("caption") or "")
        yield _Caption(image=file, caption=caption, split="test", id=str(row.get("figure_id", "")))


def _of_tokens(raw: RawFiles, name: str) -> Iterator[_Caption]:
    """Yield captions of lines such as ``1000092795.jpg#0`` TAB caption."""
    # Not splitlines, which also ends lines at characters that captions can contain.
    for number, line in enumerate(raw.text(name).split("\n"), 1):
        image, tab, caption = line.partition("\t")
        if line.strip() and not tab:
            raise SourceError(
                f"{raw.folder}/{name}, line {number}: expected IMAGE#NUMBER, a tab "
                f"and a caption; found {line[:80]!r}"
            )
        if tab:
            file, _, at = image.rpartition("#")
            yield _Caption(image=file or image, caption=caption, split="test", id=at or "0")


def _example(raw: RawFiles, row: _Captioned) -> Example:
    values: dict[str, Any] = {
        "text": list(row.captions),
        "caption_id": list(row.captions.values()),
        "subset": row.subset or None,
    }
    return Example(id=row.name, path=row.name, read=partial(raw.read, row.file), values=values)
