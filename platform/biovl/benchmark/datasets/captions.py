"""CSV or TSV table of image files and captions: columns ``image`` and ``caption``.

Rows of the same file are one image with several captions. Retrieval is broken down by columns
``global_concepts`` and ``license_group``; a column may also identify patients (``proxy``). If a
file has several rows, these columns are read from the first. File names are relative to the folder
of the table.
"""

import csv
import io
import posixpath
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePosixPath

import pyarrow as pa

from biovl.benchmark import selection
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.stored_images import ImageFiles
from biovl.core import spreadsheets
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder

OUTSIDE = "named outside the folder"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the dataset: a table of captions."""

    path: str
    """The .csv or .tsv file, local or ``s3://``."""
    image: str = "image"
    """Column of the image file names."""
    caption: str = "caption"
    """Column of the captions."""


def build(config: Config) -> Pairs:
    """Return the pairs, with the other columns in ``about``.

    Raises:
        ArtifactError: If the table does not exist, a column is missing, or a row has other cells.
    """
    uri, _, name = config.path.rpartition("/")
    folder = Folder(uri or ".")
    if not folder.exists(name):
        raise ArtifactError(f"{config.path} does not exist: expected a table of captions")
    try:
        text = io.StringIO(spreadsheets.decode(folder.read(name)), newline="")
        delimiter = "\t" if name.endswith(".tsv") else ","
        needed = (config.image, config.caption)
        rows = spreadsheets.rows(text, delimiter=delimiter, needed=needed)
        _, header = next(rows, (0, []))
        cells_of = [list[str]() for _ in header]
        for number, cells in rows:
            if len(cells) != len(header):
                raise csv.Error(f"line {number}: {len(cells)} cells, {len(header)} in the header")
            for own, cell in zip(cells_of, cells, strict=True):
                own.append(cell)
    except UnicodeDecodeError as error:
        hint = spreadsheets.encoding_hint(error)
        raise ArtifactError(f"{config.path} cannot be read as a table: {hint}") from error
    except csv.Error as error:
        raise ArtifactError(f"{config.path} cannot be read as a table: {error}") from error
    # All are strings: patient 001 is not 1.
    table = pa.table([pa.array(cells, pa.string()) for cells in cells_of], header)
    for column in (config.image, config.caption):
        if column not in table.column_names:
            raise ArtifactError(
                f"{config.path} has no column {column}; found {', '.join(table.column_names)}"
            )
    files = table[config.image].to_pylist()
    inside = [row for row, file in enumerate(files) if is_inside(file)]
    left_out = Counter({OUTSIDE: len(files) - len(inside)})
    captions = table[config.caption].to_pylist()
    rows_of: dict[str, list[int]] = {}
    for row in inside:
        rows_of.setdefault(posixpath.normpath(files[row]), []).append(row)
    names, first = tuple(rows_of), [rows[0] for rows in rows_of.values()]
    return selection.pairs(
        name=name.rpartition(".")[0],
        images=ImageFiles.of(uri or ".", names),
        texts=[[captions[row] for row in rows] for rows in rows_of.values()],
        ids=[f"{row}/{file}" for row, file in zip(first, names, strict=True)],
        about=table.drop_columns([config.image, config.caption]).take(first),
        left_out=+left_out,
    )


def is_inside(name: str) -> bool:
    """Return whether a relative path stays inside its folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    return bool(name) and not path.is_absolute() and ".." not in path.parts
