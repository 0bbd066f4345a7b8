"""µ-Bench and Biomedica2025EvalSet: Parquet files of images with labels, options and answers.

All columns are kept as published, so that benchmark reads the same questions. The class of an image
of µ-Bench is ``label`` (its ``label_name``; the number is ``label_number``). The suite of a row of
Biomedica2025EvalSet, the folder of its file, is the column ``suite``.
"""

import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.benchmark import choice_columns, selection
from biovl.benchmark.datasets import SPLITS
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.benchmark.stored_images import image_bytes
from biovl.core.errors import SourceError

SETS = {
    "ubench": SetAbout(
        title="µ-Bench (Micro-Bench): microscopy with labels, captions and questions",
        files=("data/test-00000-of-00007.parquet …, all files of the split test",),
        get="https://huggingface.co/datasets/jnirschl/uBench",
        size="about 4 GB",
        licence="CC-BY-SA-4.0; by row: column license",
        citation="Lozano et al. 2024, µ-Bench: a vision-language benchmark for microscopy "
        "understanding, arXiv:2407.01791",
        papers={"µ-Bench on the hub (perception)": {"test": 17_315}},
        differs="BIOMEDICA uses its tasks by the column dataset, which is empty in some rows",
    ),
    "biomedica_evalset": SetAbout(
        title="Biomedica2025EvalSet: multiple-choice questions of BIOMEDICA's classification tasks",
        files=("data/SUITE/….parquet of medmnist, patchcamelyon, ubench, lc25000 …",),
        get="https://huggingface.co/datasets/BIOMEDICA/Biomedica2025EvalSet",
        size="about 30 GB",
        licence="by row: column provenance_license; check the source of each suite, of which some "
        "may not be redistributed (CheXpert, RSNA, CATARACTS)",
        citation="Lozano et al. 2025, BIOMEDICA, arXiv:2501.07171",
        differs="rows without two options, without an answer or of the task unknown are kept here; "
        "benchmark leaves them out and counts them",
        settings={"data": "biomedica_evalset"},
    ),
}

NO_IMAGE = "no image in the row"

_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader: which data set."""

    data: Literal["ubench", "biomedica_evalset"] = "ubench"
    """The data set."""
    suites: tuple[str, ...] = ()
    """Suites of Biomedica2025EvalSet to prepare, by the name of their folder; empty: all."""


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return the rows by split."""
    names = [name for name in raw.names if name.lower().endswith(".parquet")]
    if config.suites:
        names = [name for name in names if _suite(name) in config.suites]
    if not names:
        wanted = f" below {' or '.join(config.suites)}" if config.suites else ""
        raise raw.missing(f"a .parquet file{wanted}")
    rows_of: dict[str, dict[str, int]] = {}
    schemas: dict[str, pa.Schema] = {}
    for name in names:
        try:
            metadata = pq.read_metadata(raw.local_path(name))
        except (pa.ArrowInvalid, OSError) as error:
            raise raw.damaged(name, error) from error
        schemas[name] = metadata.schema.to_arrow_schema()
        stem = posixpath.basename(name).removesuffix(".parquet").partition("-")[0]
        split = selection.split_named(stem)
        if split is None:
            raw.warn(f"{name} is not named after a split: read as test")
        rows_of.setdefault(split or "test", {})[name] = metadata.num_rows
    columns = _columns(config, raw, schemas)
    _warn_of_missing_files(raw, names)
    if config.data == "ubench" and "dataset" in columns:
        _warn_of_rows_without_dataset(raw, names)
    return RawSet(
        holds="choices",
        columns=columns,
        splits={
            split: _Rows(raw, config.data, rows_of[split], tuple(columns))
            for split in SPLITS
            if split in rows_of
        },
    )


def _columns(
    config: Config, raw: RawFiles, schemas: Mapping[str, pa.Schema]
) -> dict[str, pa.DataType]:
    """Return the columns to write; those of all files must agree."""
    merged: dict[str, pa.DataType] = {}
    for name, schema in schemas.items():
        if "image" not in schema.names:
            raise SourceError(
                f"{raw.folder}/{name} has no column image; found {', '.join(schema.names)}"
            )
        if not choice_columns.layout(schema):
            raise SourceError(
                f"{raw.folder}/{name} has no options with answers; found "
                f"{', '.join(schema.names)}. Expected the files of {SETS[config.data].get}"
            )
        for field in schema:
            known = merged.setdefault(field.name, field.type)
            # A column that is null in all rows of a file has no type there.
            if pa.types.is_null(known):
                merged[field.name] = field.type
            elif known != field.type and not pa.types.is_null(field.type):
                raise SourceError(
                    f"{raw.folder}: the column {field.name} is {known} in one file and "
                    f"{field.type} in {name}: they are of different data sets or versions"
                )
    merged.pop("image")
    own_id = {"source_id": merged.pop("id")} if "id" in merged else {}
    if config.data == "ubench" and "label_name" in merged:
        number = merged.get("label", pa.int64())
        merged |= {"label": pa.string(), "label_number": number}
    elif config.data == "biomedica_evalset":
        merged["suite"] = pa.string()
    return {**merged, **own_id}


@dataclass(frozen=True)
class _Rows:
    """Rows of some Parquet files, read in batches."""

    raw: RawFiles
    data: str
    files: Mapping[str, int]
    """Names of the files with their numbers of rows."""
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return sum(self.files.values())

    def __iter__(self) -> Iterator[Example]:
        known, numbers = Counter[str](), Counter[str]()
        for name in self.files:
            path, suite = self.raw.local_path(name), _suite(name)
            try:
                for batch in pq.ParquetFile(path).iter_batches(_BATCH):
                    for row in batch.to_pylist():
                        yield self._example(suite, numbers[suite], row, known)
                        numbers[suite] += 1
            except (pa.ArrowInvalid, OSError) as error:
                raise self.raw.damaged(name, error) from error

    def _example(
        self, suite: str, number: int, row: dict[str, Any], known: Counter[str]
    ) -> Example:
        cell = row.pop("image")
        data = image_bytes(cell)
        own = str(row.get("image_id") or row.get("id") or f"{suite}/row {number}")
        if self.data == "biomedica_evalset":
            own = f"{suite}/{own}"
            row["suite"] = suite
        known[own] += 1
        name = own if known[own] == 1 else f"{own}#{known[own]}"
        if "id" in row:
            row["source_id"] = row.pop("id")
        if "label_number" in self.columns:
            row["label_number"], row["label"] = row.get("label"), row.get("label_name")
        path = (cell.get("path") if isinstance(cell, dict) else None) or f"{own}.png"

        def read() -> bytes:
            if not data:
                raise OSError(NO_IMAGE)
            return data

        return Example(id=name, path=posixpath.basename(path), read=read, values=row)


def _warn_of_rows_without_dataset(raw: RawFiles, names: list[str]) -> None:
    columns = [
        pq.read_table(raw.local_path(name), columns=["dataset"])["dataset"] for name in names
    ]
    count = sum(column.null_count for column in columns)
    if count:
        raw.warn(f"{count:,} rows have no dataset: they are in no task of one")


def _suite(name: str) -> str:
    return posixpath.basename(posixpath.dirname(name))


def _warn_of_missing_files(raw: RawFiles, names: list[str]) -> None:
    """Warn of each series of files, ``test-00000-of-00007``, of which some are missing."""
    existing: dict[str, set[str]] = {}
    for name in names:
        stem, _, total = name.removesuffix(".parquet").rpartition("-of-")
        start, _, _ = stem.rpartition("-")
        if total.isdecimal():
            existing.setdefault(f"{start}-*-of-{total}", set()).add(stem)
    for series, found in existing.items():
        expected = int(series.rpartition("-")[2])
        if len(found) < expected:
            raw.warn(f"{series}: {len(found)} of {expected} files were found")
