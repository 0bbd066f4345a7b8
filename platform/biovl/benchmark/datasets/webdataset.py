"""WebDataset tars: ``KEY.jpg`` with ``KEY.cls`` (a label) or ``KEY.txt`` (a text).

Tars are in the folder itself, or in ``train/``, ``val/`` and ``test/`` as in CLIP_benchmark, with
``classnames.txt``, one class per line, in the folder. If ``dataset_type.txt`` says ``retrieval``,
each line of a text is a caption, as there; pairs are those of ``test/`` if that exists.
"""

import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from biovl.benchmark import selection
from biovl.benchmark.datasets import LabelledImages, Pairs
from biovl.benchmark.datasets.folder import ENDINGS
from biovl.benchmark.stored_images import Ranges, hash_of, version_of
from biovl.core import spreadsheets
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import base_name
from biovl.core.folders import Folder

NO_IMAGE = "no image"
_MOST_TEXT_BYTES = 1 << 20
_TYPE = "dataset_type.txt"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the dataset: WebDataset tars."""

    path: str
    """The folder of the tars, local or ``s3://``."""
    classes: tuple[str, ...] = ()
    """Names of the labels 0, 1 …; empty: the lines of classnames.txt."""
    split: str = "test"
    """Split of the tars that are not in a folder of a split. test: the one in their names, test if
    no name has one."""


@dataclass
class _Row:
    key: str
    split: str
    file: int
    offset: int = -1
    size: int = 0
    is_plain: bool = False
    """Whether the image's name is the key and a suffix."""
    label: int = -1
    text: str = ""


def build(config: Config) -> LabelledImages | Pairs:
    """Return labelled images, or pairs if there are no labels; reads headers, labels and texts.

    Raises:
        ArtifactError: If there are no tars, one is unreadable, or images have neither label nor
            text.
    """
    folder = Folder(config.path)
    tars = _tars(config, folder)
    if not tars:
        raise ArtifactError(f"{config.path} has no .tar files, neither there nor in test/")
    rows = [
        row
        for number, (name, split) in enumerate(tars)
        for row in _rows(folder, name, split, number)
    ]
    without = [row.split for row in rows if row.offset < 0]
    rows = [row for row in rows if row.offset >= 0]
    is_pairs, left_out = all(row.label < 0 for row in rows), Counter({NO_IMAGE: len(without)})
    if is_pairs and any(row.split == "test" for row in rows):
        left_out[selection.OTHER_SPLIT] = sum(row.split != "test" for row in rows)
        rows = [row for row in rows if row.split == "test"]
    images = Ranges(
        uri=config.path,
        names=tuple(name for name, _ in tars),
        file_N=np.array([row.file for row in rows], np.int64),
        offset_N=np.array([row.offset for row in rows], np.int64),
        size_N=np.array([row.size for row in rows], np.int64),
        fingerprint=hash_of([version_of(folder, name) for name, _ in tars]),
    )
    name, ids = base_name(config.path), [row.key for row in rows]
    if is_pairs:
        kind = folder.read(_TYPE).decode().strip() if folder.exists(_TYPE) else ""
        # Not splitlines, which also ends lines at characters that captions can contain.
        texts = [
            [line.strip() for line in row.text.split("\n")] if kind == "retrieval" else [row.text]
            for row in rows
        ]
        return selection.pairs(name=name, images=images, texts=texts, ids=ids, left_out=+left_out)
    classes = config.classes
    if not classes and folder.exists("classnames.txt"):
        classes = tuple(spreadsheets.decode(folder.read("classnames.txt")).rstrip().splitlines())
    if not classes:
        raise ArtifactError(f"{config.path} has no classnames.txt; set classes")
    return selection.labelled(
        name=name,
        images=images,
        labels=[row.label for row in rows],
        classes=classes,
        splits=[row.split for row in rows],
        ids=ids,
        left_out_of=selection.count_left_out(NO_IMAGE, without),
    )


def _tars(config: Config, folder: Folder) -> list[tuple[str, str]]:
    names = folder.names("", ".tar")
    splits = {name: selection.split_of_file(name) for name in names}
    if config.split != "test" or not any(splits.values()):
        splits = dict.fromkeys(names, config.split)
    unnamed = [name for name, split in splits.items() if split is None]
    if unnamed:
        raise ArtifactError(
            f"{folder.described}/{unnamed[0]} is not named after a split, as other files there "
            "are: rename it, or set split=val or split=train for all of them"
        )
    tars = [(name, split) for name, split in splits.items() if split is not None]
    for inner in ("train", "val", "valid", "validation", "test"):
        split = selection.split_named(inner) or ""
        tars += [(f"{inner}/{name}", split) for name in folder.names(inner, ".tar")]
    return tars


def _rows(folder: Folder, name: str, split: str, number: int) -> Iterator[_Row]:
    """Yield one row per key of a tar, in its order. Nothing is extracted to disk."""
    row: _Row | None = None
    try:
        with (
            folder.filesystem.open_input_file(folder.at(name)) as file,
            tarfile.open(fileobj=file, mode="r:") as archive,
        ):
            for member in archive:
                if not member.isfile():
                    continue
                path, _, base = member.name.rpartition("/")
                stem, _, kind = base.partition(".")
                key = f"{name}:{path}/{stem}" if path else f"{name}:{stem}"
                if row is None or row.key != key:
                    if row is not None:
                        yield row
                    row = _Row(key, split, number)
                if f".{kind.lower()}".endswith(ENDINGS):
                    # Beside 000.png, 000.seg.png is a mask.
                    is_plain = "." not in kind
                    if row.offset < 0 or (is_plain and not row.is_plain):
                        row.offset, row.size = member.offset_data, member.size
                        row.is_plain = is_plain
                elif kind in ("cls", "txt") and member.size <= _MOST_TEXT_BYTES:
                    stored = archive.extractfile(member)
                    data = stored.read().decode("utf-8", "replace").strip() if stored else ""
                    if kind == "txt":
                        row.text = data
                    else:
                        row.label = int(data)
    except (tarfile.TarError, ValueError) as error:
        raise ArtifactError(f"{folder.described}/{name} cannot be read: {error}") from error
    if row is not None:
        yield row
