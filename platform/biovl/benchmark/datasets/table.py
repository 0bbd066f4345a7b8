"""Parquet tables with an image and a label or a text per row, as published on Hugging Face.

Images are bytes, or a struct of ``bytes`` and ``path``. Labels are strings, or integers (also
stored as doubles) with names in the metadata (``ClassLabel``). Splits are a column, or part of the
file names (``test-00000-of-00001.parquet``, ``train_1.parquet``).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.benchmark import selection
from biovl.benchmark.datasets import Images, LabelledImages, Pairs
from biovl.benchmark.stored_images import Chosen, Column, parquet_parts
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import base_name
from biovl.core.folders import Folder
from biovl.core.tables import read_table

NO_LABEL = "no label"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the dataset: a Parquet table."""

    path: str
    """The folder of the .parquet files, local or ``s3://``."""
    image: str = "image"
    """Column of the images."""
    label: str = "label"
    """Column of the labels."""
    text: str = ""
    """Column of texts, or of lists of texts; if set, the dataset is pairs of image and text instead
    of labelled images."""
    pairs_of: str = "test"
    """Split of the pairs to use; if no row is of it, all are used."""
    split: str = "split"
    """Column of the splits. If it does not exist, file names determine the split; otherwise it is
    test."""
    id: str = ""
    """Column of unique ids; empty: the row numbers."""
    classes: tuple[str, ...] = ()
    """Names of the labels 0, 1 …, or the label strings in the order of the classes. Empty: from the
    metadata, or all strings, sorted."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Use only rows with these values, by column: ``{"dataset": "acevedo_et_al_2020"}``."""
    about: tuple[str, ...] = ()
    """Further columns that tasks use: ``global_concepts`` and ``license_group``, by which retrieval
    is broken down, and that of patients (``proxy``)."""


def build(config: Config) -> LabelledImages | Pairs:
    """Return labelled images or pairs; reads no image.

    Raises:
        ArtifactError: If a column is missing, or a label has no name.
    """
    parts, schema, known = parquet_parts(config.path)
    required = [config.image, config.text or config.label, *config.where, *config.about]
    for name in [*required, *filter(None, [config.id])]:
        if name not in schema.names:
            raise ArtifactError(
                f"{config.path} has no column {name}; found {', '.join(sorted(schema.names))}"
            )
    # Labels of several tasks must not be mixed in one classification.
    task = "task" if {"task", "options"} <= set(schema.names) and not config.where else ""
    read = {*required[1:], config.id, config.split, task} & set(schema.names)
    values = _values(config, [name for name, _ in parts], sorted(read))
    images: Images = Column(config.path, parts, config.image, f"{known}-{config.image}")
    rows, others = np.flatnonzero(selection.rows_where(values, config.where)), 0
    if not len(rows) and len(images):
        raise ArtifactError(f"{config.path} has no rows with {_found(config.where, values)}")
    ids = values[config.id].cast(pa.string()).to_pylist() if config.id else None
    names = [ids[row] if ids else str(row) for row in rows]
    name = base_name(config.path)
    if config.text:
        is_asked = _splits(config, values, parts)[rows] == config.pairs_of
        if is_asked.any():
            rows, others = rows[is_asked], int((~is_asked).sum())
            names = [names[number] for number in np.flatnonzero(is_asked)]
        texts = _texts(values[config.text])
        about = values.select(config.about).append_column("id", pa.array(ids or range(len(images))))
        return selection.pairs(
            name=name,
            images=Chosen(images, rows) if len(rows) < len(images) else images,
            texts=[texts[row] for row in rows],
            ids=names,
            about=about.take(rows),
            left_out={selection.OTHER_SPLIT: others} if others else {},
        )
    tasks = sorted(str(one) for one in values[task].unique().to_pylist()) if task else []
    if len(tasks) > 1:
        raise ArtifactError(
            f"{config.path} holds {len(tasks)} tasks ({', '.join(tasks[:40])}): choose one, "
            f'where={{"task": "{tasks[0]}"}}, or evaluate all of them by closed_vqa'
        )
    label_N, classes = _labels(config, values[config.label].take(rows), schema)
    split_N = _splits(config, values, parts)[rows]
    labelled = np.flatnonzero(label_N >= 0)
    rows = rows[labelled]
    return selection.labelled(
        name=name,
        images=Chosen(images, rows) if len(rows) < len(images) else images,
        labels=label_N[labelled],
        classes=classes,
        splits=split_N[labelled],
        ids=[names[row] for row in labelled],
        left_out_of=selection.count_left_out(NO_LABEL, split_N[label_N < 0].tolist()),
    )


def _texts(column: pa.ChunkedArray) -> list[list[str]]:
    """Return the texts of each row: one, or those of a list."""
    if not pa.types.is_list(column.type) and not pa.types.is_large_list(column.type):
        column = column.cast(pa.string())
    return [
        [text or "" for text in ([own] if isinstance(own, str) else own or ())]
        for own in column.to_pylist()
    ]


def _found(where: Mapping[str, str], values: pa.Table) -> str:
    """Return requested and existing values of columns, for an error message."""
    parts = []
    for name, value in where.items():
        # The strings with which `where` is compared: 1 for the double 1.0.
        existing = sorted(values[name].cast(pa.string()).drop_null().unique().to_pylist())
        parts.append(f"{name} {value!r}, only {', '.join(existing[:40])}")
    return "; ".join(parts)


def _values(config: Config, names: Iterable[str], columns: list[str]) -> pa.Table:
    folder, tables, classes = Folder(config.path), list[pa.Table](), dict[str, list[str]]()
    for name in names:
        tables.append(read_table(folder, name, columns))
        classes[name] = _class_names(tables[-1].schema, config.label)
    # A label number must have the same name in all files.
    first, *others = classes
    for name in others if not config.classes else ():
        if classes[name] != classes[first]:
            raise ArtifactError(
                f"{config.path}: the labels of {first} are {classes[first]}, those of {name} "
                f"{classes[name]}: write both with the same ClassLabel, or set classes"
            )
    return pa.concat_tables(tables, promote_options="permissive")


def _labels(
    config: Config, column: pa.ChunkedArray, schema: pa.Schema
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return labels, -1 if missing, and the names of the classes."""
    # pandas stores integers with missing values as doubles.
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        try:
            label_N = column.cast(pa.int64()).fill_null(-1).to_numpy()
        except pa.ArrowInvalid as error:
            raise ArtifactError(
                f"{config.path}: {config.label} holds numbers that are not labels ({error})"
            ) from error
        names = config.classes or _class_names(schema, config.label)
        if not names:
            raise ArtifactError(
                f"{config.path}: {config.label} holds numbers without names; set classes"
            )
        return label_N, tuple(names)
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        raise ArtifactError(
            f"{config.path}: {config.label} is {column.type}, expected numbers or strings"
        )
    return selection.labels_of_names(config.path, config.label, column.to_pylist(), config.classes)


def _class_names(schema: pa.Schema, column: str) -> list[str]:
    try:
        known = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        names: Any = known["info"]["features"][column]["names"]
    except (ValueError, KeyError, TypeError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _splits(config: Config, values: pa.Table, parts: tuple[tuple[str, int], ...]) -> np.ndarray:
    if config.split in values.column_names:
        return selection.splits_of(values[config.split].cast(pa.string()).to_pylist(), parts)
    split_N = selection.splits_of(None, parts)
    return np.where(split_N == "", "test", split_N)
