"""Multiple-choice questions: Parquet with the options and the index of the correct one.

Columns are set in the configuration. Those that are not set are detected (``choice_columns``).

Unusable questions are left out and counted by reason: a single option, an answer that is not among
the options, repeated options, an unknown task, a repeated question.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.benchmark import choice_columns, choices, selection
from biovl.benchmark.choices import Choices
from biovl.benchmark.stored_images import Chosen, Column, files_of, parquet_parts
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import base_name
from biovl.core.folders import Folder
from biovl.core.tables import open_part

OTHER_SPLIT = "of another split than test"

_Captions = dict[tuple[str, str], tuple[str, ...]]
"""Captions by task and option, since tasks may share options: one per wording."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a table of questions; a dot selects a field of a struct, ``questions.stain``."""

    path: str
    """The folder of the .parquet files, local or ``s3://``."""
    image: str = "image"
    """Column of the images."""
    question: str = ""
    """Column of the question texts; they are copied to the predictions but not used otherwise.
    Empty: none."""
    options: str | tuple[str, ...] = ""
    """Column of the options, a list of strings, or one column per wording. Empty: detect it."""
    answer: str | tuple[str, ...] = ""
    """Column of the correct option, as an index from 0 or as text; one for each column of options.
    Empty: detect it."""
    captions: str = ""
    """Column of the authors' captions, used instead of the options: a list with a caption per
    option, or with several wordings of each; or the wordings of the correct option. Empty: detect
    it."""
    about: str = "classification"
    """Group of µ-Bench's questions to detect: ``classification``, ``modality``, ``stain`` …"""
    task: str = ""
    """Column of the task, by which accuracy is broken down. Empty: detect it with the options,
    otherwise all questions are of one task."""
    tasks: tuple[str, ...] = ()
    """Tasks to evaluate; questions of others are left out. Empty: all but ``unknown``."""
    id: str = ""
    """Column of unique ids; empty: the row numbers."""
    image_id: str = ""
    """Column of image ids, used to detect repeated questions; empty: compare the image bytes, which
    reads all images."""
    split: str = "split"
    """Column of the splits, of which test is used. If it does not exist, file names determine the
    split; if no row is of the split test, all are used."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Use only rows with these values, by column."""


def build(config: Config) -> Choices:
    """Return the usable multiple-choice questions of a table.

    Raises:
        ArtifactError: If a column is missing or has another type, or no question is usable.
    """
    parts, schema, known = parquet_parts(config.path)
    required, config = config.captions, _completed(config, schema)
    pairs = list(zip(_several(config.options), _several(config.answer), strict=True))
    named = [config.question, config.captions, config.task, config.id, config.image_id]
    read = [name for name in (*named, *config.where) if name]
    read += [config.split] if config.split in schema.names else []
    columns = list(dict.fromkeys([*(name for pair in pairs for name in pair), *read]))
    _check_columns(config, [*columns, config.image], schema)
    table = _table(config, [name for name, _ in parts], columns)
    images = Column(config.path, parts, config.image, f"{known}-{config.image}")
    mask = selection.rows_where(table, config.where)
    stated = table[config.split].cast(pa.string()).to_pylist() if config.split in read else None
    is_test = selection.splits_of(stated, parts) == "test"
    if not is_test[mask].any():
        is_test[:] = True
    rows = np.flatnonzero(mask & is_test)
    others = {OTHER_SPLIT: int((mask & ~is_test).sum())}
    table = table.take(rows)
    wordings = []
    for column, answer in pairs:
        options = _options(config, table, column)
        wordings.append((options, _answers(config, table, answer, options)))
    questions, tasks = _strings(table, config.question), _strings(table, config.task)
    unknown = [name for name in config.tasks if name not in tasks]
    if unknown:
        existing = ", ".join(sorted(set(tasks))[:40])
        raise ArtifactError(f"{config.path} has no task {unknown[0]!r}; found {existing}")
    if config.image_id:
        image_ids = _strings(table, config.image_id)
    else:
        files = files_of(Chosen(images, rows))
        image_ids = [hashlib.blake2b(data, digest_size=16).hexdigest() for data in files]

    def reasons() -> list[str | None]:
        by_wording = [
            choices.defects(image_ids, questions, options, answers, tasks, config.tasks)
            for options, answers in wordings
        ]
        return [next(filter(None, own), None) for own in zip(*by_wording, strict=True)]

    defects = reasons()
    if config.captions and len(wordings) == 1:
        usable = [number for number, reason in enumerate(defects) if reason is None]
        captions = table[config.captions].to_pylist()
        captioned = _captioned(*wordings[0], tasks, captions, usable)
        if captioned is None and required:
            raise ArtifactError(
                f"{config.path}: {required} has neither captions of each option of {column}, in "
                "their order, nor those of the right option, the same for all rows of a task"
            )
        wordings = captioned or wordings
        defects = [before or after for before, after in zip(defects, reasons(), strict=True)]
    usable_rows = [number for number, reason in enumerate(defects) if reason is None]
    counted = Counter(others) + Counter(reason for reason in defects if reason)
    left_out = dict(sorted(counted.items()))
    if not usable_rows:
        raise ArtifactError(f"{config.path} has no question that can be asked: {left_out}")
    texts, option_VEO = _numbered([[own[n] for n in usable_rows] for own, _ in wordings])
    ids = _strings(table, config.id) if config.id else [str(row) for row in rows]
    if len(set(ids)) < len(ids):
        raise ArtifactError(f"{config.path}: {config.id} is not unique")
    return Choices(
        name=base_name(config.path),
        images=images if len(usable_rows) == len(images) else Chosen(images, rows[usable_rows]),
        image_of=np.arange(len(usable_rows)),
        questions=[questions[number] for number in usable_rows],
        texts=texts,
        option_VEO=option_VEO,
        answer_VE=np.array(
            [[answers[n] for n in usable_rows] for _, answers in wordings], np.int64
        ),
        groups=[tasks[number] for number in usable_rows],
        ids=[ids[number] for number in usable_rows],
        left_out=left_out,
    )


def _completed(config: Config, schema: pa.Schema) -> Config:
    """Return the settings with detected columns filled in.

    Raises:
        ArtifactError: If there are no options, or the numbers of option and answer columns differ.
    """
    if not config.options:
        detected = choice_columns.layout(schema, config.about)
        if not detected:
            raise ArtifactError(
                f"{config.path} has no options with answers for {config.about!r}: name their "
                f"columns, options and answer; found {', '.join(sorted(schema.names))}"
            )
        set_values = {name: getattr(config, name) for name in detected}
        config = replace(config, **{name: set_values[name] or detected[name] for name in detected})
    if not config.answer:
        config = replace(config, answer="answer")
    if len(_several(config.options)) != len(_several(config.answer)):
        raise ArtifactError(
            f"{config.path}: options has {len(_several(config.options))} columns, answer "
            f"{len(_several(config.answer))}: expected as many"
        )
    return config


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _captioned(
    options: list[list[str]],
    answers: list[int],
    tasks: list[str],
    captions_of: list[Any],
    usable: list[int],
) -> list[tuple[list[list[str]], list[int]]] | None:
    """Return (options, answers) for each wording of the captions, with captions as the options.

    None if the captions cannot be assigned to the options consistently.

    Args:
        options: Options of each row.
        answers: Index of the right option of each row.
        tasks: Task of each row.
        captions_of: Caption cell of each row.
        usable: Usable rows; the others keep their options.
    """
    rows = [_Row(tasks[n], options[n], answers[n], captions_of[n]) for n in usable]
    captions = _by_option(rows) or _by_answer(rows)
    if not captions:
        return None
    wordings = []
    for v in range(len(next(iter(captions.values())))):
        worded = list(options)
        for number in usable:
            worded[number] = [captions[tasks[number], text][v] for text in options[number]]
        wordings.append((worded, answers))
    return wordings


@dataclass(frozen=True)
class _Row:
    task: str
    options: list[str]
    answer: int
    captions: Any


def _by_option(rows: Sequence[_Row]) -> _Captions:
    """Return the captions by option if rows list them in the order of their options.

    Repeated options of which no right one is ever wrong do not tell: as many captions may be the
    wordings of the right one.
    """
    asked = {(row.task, tuple(sorted(row.options))) for row in rows}
    right = {(row.task, row.options[row.answer]) for row in rows}
    others = {(r.task, text) for r in rows for text in r.options if text != r.options[r.answer]}
    if len(asked) < len(rows) and not right & others:
        return {}
    if any(isinstance(r.captions, str) or len(r.captions or ()) != len(r.options) for r in rows):
        return {}
    return _consistent(
        (row.task, text, one)
        for row in rows
        for text, one in zip(row.options, row.captions, strict=True)
    )


def _by_answer(rows: Sequence[_Row]) -> _Captions:
    """Return the captions by option if rows have those of their right option."""
    captions = _consistent((row.task, row.options[row.answer], row.captions) for row in rows)
    needed = {(row.task, text) for row in rows for text in row.options}
    return captions if needed <= captions.keys() else {}


def _consistent(cells: Iterable[tuple[str, str, Any]]) -> _Captions:
    """Return captions by task and option; empty if they contradict, or differ in number."""
    captions_of: _Captions = {}
    for task, text, cell in cells:
        captions = (cell,) if isinstance(cell, str) else tuple(cell or ())
        is_text = bool(captions) and all(isinstance(one, str) for one in captions)
        if not is_text or captions_of.setdefault((task, text), captions) != captions:
            return {}
    return captions_of if len({len(captions) for captions in captions_of.values()}) == 1 else {}


def _numbered(options: list[list[list[str]]]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the different options, and the place of each in these: int64, [V, E, O], or -1.

    Args:
        options: Options of each question, by wording.
    """
    texts = tuple(dict.fromkeys(text for rows in options for row in rows for text in row))
    place = {text: number for number, text in enumerate(texts)}
    most = max(len(row) for rows in options for row in rows)
    option_VEO = [
        [[place[text] for text in row] + [-1] * (most - len(row)) for row in rows]
        for rows in options
    ]
    return texts, np.array(option_VEO, np.int64)


def _check_columns(config: Config, columns: list[str], schema: pa.Schema) -> None:
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


def _table(config: Config, names: list[str], columns: list[str]) -> pa.Table:
    """Return columns of all files, named as in the settings."""
    folder, tables = Folder(config.path), []
    for file in names:
        with open_part(folder, file) as parquet:
            read = parquet.read(columns=columns)
        arrays = {column: _column(read, column) for column in columns}
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


def _options(config: Config, table: pa.Table, column: str) -> list[list[str]]:
    kind = table[column].type
    if not choice_columns.is_list(kind):
        raise ArtifactError(f"{config.path}: {column} is {kind}, expected lists of strings")
    return [[str(text or "") for text in row or ()] for row in table[column].to_pylist()]


def _answers(config: Config, table: pa.Table, column: str, options: list[list[str]]) -> list[int]:
    """Return the indices of the right options, -1 if missing."""

    def place(answer: Any, offered: list[str]) -> int:
        if isinstance(answer, str):
            return offered.index(answer) if answer in offered else -1
        return -1 if answer is None else int(answer)

    kind = table[column].type
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        raise ArtifactError(f"{config.path}: {column} is {kind}, expected integers or strings")
    answers = table[column].to_pylist()
    return [place(answer, offered) for answer, offered in zip(answers, options, strict=True)]
