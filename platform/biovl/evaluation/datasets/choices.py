"""Closed questions that come as such: Parquet with options and the place of the right one.

For µ-Bench and Biomedica2025EvalSet, whose names of columns are settings. What cannot be asked is
left out and counted by reason: one option (a free point), a right option that is not there, the
same option twice, a task that is unknown, a question asked again.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.errors import ArtifactError
from biovl.evaluation import choices
from biovl.evaluation.choices import Choices
from biovl.evaluation.stored_images import Chosen, Column, parquet_parts
from biovl.storage import Folder

_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a table of questions. A dot goes into a struct: ``questions.stain.options``."""

    path: str
    """The folder of the .parquet files, local or s3://."""
    image: str = "image"
    """Column of the images."""
    question: str = ""
    """Column of the question, if there is one: it is told, and not used."""
    options: str = "options"
    """Column of lists of strings."""
    answer: str = "answer"
    """Column of the place of the right option, counted from 0, or of its words."""
    task: str = ""
    """Column of the task, which accuracy is broken down by; empty: all are of one."""
    tasks: tuple[str, ...] = ()
    """Names of tasks; questions of others are left out. Empty: all but ``unknown``."""
    id: str = ""
    """Column of unique ids; empty counts the rows."""
    image_id: str = ""
    """Column that tells images apart; empty compares their bytes, which reads them all."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Only rows whose columns hold these values."""


def build(config: Config) -> Choices:
    """Return the questions that can be asked.

    Raises:
        ArtifactError: If a column is missing or of another type, or no question can be asked.
    """
    parts, schema, known = parquet_parts(config.path)
    named = [config.question, config.options, config.answer, config.task, config.id]
    wanted = [name for name in (*named, config.image_id, *config.where) if name]
    table = _table(config, [name for name, _ in parts], [*wanted, config.image], schema)
    images = Column(config.path, parts, config.image, f"{known}-{config.image}")
    mask = np.ones(len(images), bool)
    for name, value in config.where.items():
        mask &= np.asarray(pc.equal(table[name].cast(pa.string()), value).fill_null(False))
    rows = np.flatnonzero(mask)
    table = table.take(rows)
    options = _options(config, table)
    answers = _answers(config, table, options)
    questions, tasks = _strings(table, config.question), _strings(table, config.task)
    shown = _strings(table, config.image_id) if config.image_id else _digests(images, rows)
    found = choices.defects(shown, questions, options, answers, tasks, config.tasks)
    kept = [number for number, reason in enumerate(found) if reason is None]
    left_out = dict(sorted(Counter(reason for reason in found if reason).items()))
    if not kept:
        raise ArtifactError(f"{config.path} has no question that can be asked: {left_out}")
    texts = tuple(dict.fromkeys(text for number in kept for text in options[number]))
    place = {text: number for number, text in enumerate(texts)}
    option_EO = np.full((len(kept), max(len(options[number]) for number in kept)), -1, np.int64)
    for row, number in zip(option_EO, kept, strict=True):
        row[: len(options[number])] = [place[text] for text in options[number]]
    ids = _strings(table, config.id) if config.id else [str(row) for row in rows]
    if len(set(ids)) < len(ids):
        raise ArtifactError(f"{config.path}: {config.id} is not unique")
    return Choices(
        name=config.path.rstrip("/").rpartition("/")[2],
        images=images if len(kept) == len(images) else Chosen(images, rows[kept]),
        image_of=np.arange(len(kept)),
        questions=[questions[number] for number in kept],
        texts=texts,
        option_VEO=option_EO[None],
        answer_VE=np.array([[answers[number] for number in kept]], np.int64),
        groups=[tasks[number] for number in kept],
        ids=[ids[number] for number in kept],
        left_out=left_out,
    )


def _table(config: Config, names: list[str], columns: list[str], schema: pa.Schema) -> pa.Table:
    """Return the columns but the image, under the names they have in the settings."""
    for column in columns:
        top, *inner = column.split(".")
        if column not in schema.names and top not in schema.names:
            raise ArtifactError(
                f"{config.path} has no column {column}; found {', '.join(sorted(schema.names))}"
            )
        at = schema.field(column if column in schema.names else top).type
        for name in inner if column not in schema.names else ():
            if not pa.types.is_struct(at) or at.get_field_index(name) < 0:
                raise ArtifactError(f"{config.path}: {column} is not in the column {top}: {at}")
            at = at.field(name).type
    folder, tables = Folder(config.path), []
    for file in names:
        with folder.filesystem.open_input_file(folder.at(file)) as stream:
            read = pq.ParquetFile(stream).read(columns=columns[:-1])
        arrays = {column: _column(read, column) for column in columns[:-1]}
        tables.append(pa.table(arrays))
    return pa.concat_tables(tables, promote_options="permissive")


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name in table.column_names:
        return table[name]
    top, *inner = name.split(".")
    return pc.struct_field(table[top], inner)


def _strings(table: pa.Table, name: str) -> list[str]:
    if not name:
        return [""] * len(table)
    texts: list[str] = table[name].cast(pa.string()).fill_null("").to_pylist()
    return texts


def _options(config: Config, table: pa.Table) -> list[list[str]]:
    kind = table[config.options].type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise ArtifactError(f"{config.path}: {config.options} is {kind}, expected lists of strings")
    return [[str(text or "") for text in row or ()] for row in table[config.options].to_pylist()]


def _answers(config: Config, table: pa.Table, options: list[list[str]]) -> list[int]:
    """Return the places of the right options, -1 where there is none."""

    def place(answer: Any, offered: list[str]) -> int:
        if isinstance(answer, str):
            return offered.index(answer) if answer in offered else -1
        return -1 if answer is None else int(answer)

    kind = table[config.answer].type
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        raise ArtifactError(f"{config.path}: {config.answer} is {kind}, expected a place or words")
    answers = table[config.answer].to_pylist()
    return [place(answer, offered) for answer, offered in zip(answers, options, strict=True)]


def _digests(images: Column, rows: np.ndarray) -> list[str]:
    found: list[str] = []
    for start in range(0, len(images), _AT_ONCE):
        read = images.read(start, min(start + _AT_ONCE, len(images)))
        found += [hashlib.blake2b(data, digest_size=16).hexdigest() for data in read]
    return [found[row] for row in rows]
