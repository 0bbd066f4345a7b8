"""Closed questions that come as such: Parquet with options and the place of the right one.

Columns are settings; where they are not set, these layouts are recognized, the first before others:

    captions.classification_0.options, .answer_idx    µ-Bench: the authors' captions, two wordings
    options, answer_idx (or answer), captions         Biomedica2025EvalSet, with captions or without
    questions.classification.options, .answer         µ-Bench without captions

What cannot be asked is left out and counted by reason: one option (a free point), a right option
that is not there, the same option twice, a task that is unknown, a question asked again.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from biovl.benchmark import choices, selection
from biovl.benchmark.choices import Choices
from biovl.benchmark.stored_images import Chosen, Column, parquet_parts
from biovl.core.artifacts import Folder
from biovl.core.errors import ArtifactError

OTHER_SPLIT = "of another split than test"

_AT_ONCE = 256

_Captions = dict[tuple[str, str], tuple[str, ...]]
"""By the task and the words of an option, since tasks may share words: its wordings."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a table of questions. A dot goes into a struct: ``questions.stain.options``."""

    path: str
    """The folder of the .parquet files, local or s3://."""
    image: str = "image"
    """Column of the images."""
    question: str = ""
    """Column of the question, if there is one: it is told, and not used."""
    options: str | tuple[str, ...] = ""
    """Column of lists of strings, or several of them, a wording each. Empty is recognized."""
    answer: str | tuple[str, ...] = ""
    """Column of the place of the right option, counted from 0, or of its words; one for each column
    of options. Empty is recognized."""
    captions: str = ""
    """Column of the authors' captions, which take the place of the options: a list with a caption
    of each option, or with some wordings of each; or the wordings of the right option."""
    about: str = "classification"
    """Which of µ-Bench's questions is recognized: classification, modality, stain …"""
    task: str = ""
    """Column of the task, which accuracy is broken down by; empty: all are of one, or it is
    recognized with the options."""
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
    required, config = config.captions, _completed(config, schema)
    pairs = list(zip(_several(config.options), _several(config.answer), strict=True))
    named = [config.question, config.captions, config.task, config.id, config.image_id]
    wanted = [name for name in (*named, *config.where) if name]
    columns = list(dict.fromkeys([*(name for pair in pairs for name in pair), *wanted]))
    table = _table(config, [name for name, _ in parts], [*columns, config.image], schema)
    images = Column(config.path, parts, config.image, f"{known}-{config.image}")
    mask = np.ones(len(images), bool)
    for name, value in config.where.items():
        mask &= np.asarray(pc.equal(table[name].cast(pa.string()), value).fill_null(False))
    is_test = _is_test(parts)
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
        there = ", ".join(sorted(set(tasks))[:40])
        raise ArtifactError(f"{config.path} has no task {unknown[0]!r}; found {there}")
    shown = _strings(table, config.image_id) if config.image_id else _digests(images, rows)

    def reasons() -> list[str | None]:
        by_wording = [
            choices.defects(shown, questions, options, answers, tasks, config.tasks)
            for options, answers in wordings
        ]
        return [next(filter(None, own), None) for own in zip(*by_wording, strict=True)]

    found = reasons()
    if config.captions and len(wordings) == 1:
        asked = [number for number, reason in enumerate(found) if reason is None]
        given = table[config.captions].to_pylist()
        captioned = _captioned(*wordings[0], tasks, given, asked)
        if captioned is None and required:
            raise ArtifactError(
                f"{config.path}: {required} has neither captions of each option of {column}, in "
                "their order, nor those of the right option, the same for all rows of a task"
            )
        wordings = captioned or wordings
        found = [before or after for before, after in zip(found, reasons(), strict=True)]
    kept = [number for number, reason in enumerate(found) if reason is None]
    counted = Counter(others) + Counter(reason for reason in found if reason)
    left_out = dict(sorted(counted.items()))
    if not kept:
        raise ArtifactError(f"{config.path} has no question that can be asked: {left_out}")
    texts = tuple(dict.fromkeys(text for own, _ in wordings for n in kept for text in own[n]))
    place = {text: number for number, text in enumerate(texts)}
    most = max(len(options[number]) for options, _ in wordings for number in kept)
    option_VEO = np.full((len(wordings), len(kept), most), -1, np.int64)
    for option_EO, (options, _) in zip(option_VEO, wordings, strict=True):
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
        option_VEO=option_VEO,
        answer_VE=np.array([[answers[n] for n in kept] for _, answers in wordings], np.int64),
        groups=[tasks[number] for number in kept],
        ids=[ids[number] for number in kept],
        left_out=left_out,
    )


def _is_test(parts: Sequence[tuple[str, int]]) -> np.ndarray:
    """Return which rows are asked: those of files named test where there are any, else all."""
    splits = [
        selection.split_named(name.rpartition("/")[2].removesuffix(".parquet").partition("-")[0])
        for name, _ in parts
    ]
    is_asked = [split == "test" or "test" not in splits for split in splits]
    found: np.ndarray = np.repeat(is_asked, [rows for _, rows in parts])
    return found


def recognized(path: str, about: str = "classification") -> dict[str, Any]:
    """Return the settings of ``layout`` for a folder of Parquet files, by its first file.

    What cannot be read is not recognized: its reader says why.
    """
    folder = Folder(path)
    for inner in ("", "data/"):
        for name in folder.names(inner.rstrip("/"), ".parquet")[:1]:
            try:
                with folder.filesystem.open_input_file(folder.at(inner + name)) as stream:
                    return layout(pq.read_schema(stream), about)
            except pa.ArrowInvalid:
                return {}
    return {}


def layout(schema: pa.Schema, about: str = "classification") -> dict[str, Any]:
    """Return the settings under which columns hold questions with options; empty if they do not.

    Args:
        schema: Of the table.
        about: Which of µ-Bench's questions.
    """
    found = _with_captions(schema, about) or _with_options(schema) or _with_questions(schema, about)
    if not found:
        return {}
    task = next((name for name in ("task", "dataset") if name in schema.names), "")
    return {"task": task, **found}


def _with_captions(schema: pa.Schema, about: str) -> dict[str, Any]:
    members = _members(schema, "captions")
    numbered = sorted(
        (int(number), name)
        for name in members
        for head, _, number in [name.rpartition("_")]
        if head == about and number.isdecimal() and _answer_in(members[name])
    )
    if not numbered:
        return {}
    return {
        "options": tuple(f"captions.{name}.options" for _, name in numbered),
        "answer": tuple(f"captions.{name}.{_answer_in(members[name])}" for _, name in numbered),
    }


def _with_options(schema: pa.Schema) -> dict[str, Any]:
    answer = _answer_in({name: schema.field(name).type for name in schema.names})
    if not answer:
        return {}
    kind = schema.field("captions").type if "captions" in schema.names else pa.null()
    captions = "captions" if _is_list(kind) or pa.types.is_string(kind) else ""
    return {"options": "options", "answer": answer, "captions": captions}


def _with_questions(schema: pa.Schema, about: str) -> dict[str, Any]:
    members = _members(schema, "questions")
    answer = _answer_in(members[about]) if about in members else ""
    if not answer:
        return {}
    inside = f"questions.{about}"
    return {"options": f"{inside}.options", "answer": f"{inside}.{answer}"}


def _members(schema: pa.Schema, column: str) -> dict[str, dict[str, pa.DataType]]:
    """Return the structs inside a column of structs, with the types of what they hold."""
    at = schema.field(column).type if column in schema.names else pa.null()
    inside = {item.name: item.type for item in at} if pa.types.is_struct(at) else {}
    return {
        name: {item.name: item.type for item in kind}
        for name, kind in inside.items()
        if pa.types.is_struct(kind)
    }


def _answer_in(columns: Mapping[str, pa.DataType]) -> str:
    """Return what holds the right option beside ``options``; empty if there are no options."""
    if not _is_list(columns.get("options", pa.null())):
        return ""
    return next((name for name in ("answer_idx", "answer") if name in columns), "")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _completed(config: Config, schema: pa.Schema) -> Config:
    """Return the settings with those that are not set and recognized.

    Raises:
        ArtifactError: If there are no options, or not as many columns of options as of answers.
    """
    if not config.options:
        found = layout(schema, config.about)
        if not found:
            raise ArtifactError(
                f"{config.path} has no options with answers for {config.about!r}: name their "
                f"columns, options and answer; found {', '.join(sorted(schema.names))}"
            )
        given = {name: getattr(config, name) for name in found}
        config = replace(config, **{name: given[name] or found[name] for name in found})
    if not config.answer:
        config = replace(config, answer="answer")
    if len(_several(config.options)) != len(_several(config.answer)):
        raise ArtifactError(
            f"{config.path}: there are {len(_several(config.options))} columns of options and "
            f"{len(_several(config.answer))} of answers"
        )
    return config


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _captioned(
    options: list[list[str]],
    answers: list[int],
    tasks: list[str],
    given: list[Any],
    asked: list[int],
) -> list[tuple[list[list[str]], list[int]]] | None:
    """Return the options as their captions, once for each wording; None if captions are others.

    Args:
        options: Of each row.
        answers: Place of the right one.
        tasks: Of each row.
        given: The cell of captions of each row.
        asked: Rows that can be asked; others keep their options.
    """
    rows = [_Row(tasks[n], options[n], answers[n], given[n]) for n in asked]
    captions = _by_option(rows) or _by_answer(rows)
    if not captions:
        return None
    wordings = []
    for v in range(len(next(iter(captions.values())))):
        worded = list(options)
        for number in asked:
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
    """Return the captions of each option if rows list them in the order of their options."""
    if any(isinstance(r.captions, str) or len(r.captions or ()) != len(r.options) for r in rows):
        return {}
    return _consistent(
        (row.task, text, one)
        for row in rows
        for text, one in zip(row.options, row.captions, strict=True)
    )


def _by_answer(rows: Sequence[_Row]) -> _Captions:
    """Return the captions of each option if rows hold those of their right option."""
    found = _consistent((row.task, row.options[row.answer], row.captions) for row in rows)
    asked = {(row.task, text) for row in rows for text in row.options}
    return found if asked <= found.keys() else {}


def _consistent(given: Iterable[tuple[str, str, Any]]) -> _Captions:
    """Return captions by task and option; none if an option has two, or they are not as many."""
    found: _Captions = {}
    for task, text, cell in given:
        captions = (cell,) if isinstance(cell, str) else tuple(cell or ())
        is_text = bool(captions) and all(isinstance(one, str) for one in captions)
        if not is_text or found.setdefault((task, text), captions) != captions:
            return {}
    return found if len({len(captions) for captions in found.values()}) == 1 else {}


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


def _options(config: Config, table: pa.Table, column: str) -> list[list[str]]:
    kind = table[column].type
    if not _is_list(kind):
        raise ArtifactError(f"{config.path}: {column} is {kind}, expected lists of strings")
    return [[str(text or "") for text in row or ()] for row in table[column].to_pylist()]


def _answers(config: Config, table: pa.Table, column: str, options: list[list[str]]) -> list[int]:
    """Return the places of the right options, -1 where there is none."""

    def place(answer: Any, offered: list[str]) -> int:
        if isinstance(answer, str):
            return offered.index(answer) if answer in offered else -1
        return -1 if answer is None else int(answer)

    kind = table[column].type
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        raise ArtifactError(f"{config.path}: {column} is {kind}, expected a place or words")
    answers = table[column].to_pylist()
    return [place(answer, offered) for answer, offered in zip(answers, options, strict=True)]


def _digests(images: Column, rows: np.ndarray) -> list[str]:
    chosen, found = Chosen(images, rows), list[str]()
    for start in range(0, len(chosen), _AT_ONCE):
        read = chosen.read(start, min(start + _AT_ONCE, len(chosen)))
        found += [hashlib.blake2b(data, digest_size=16).hexdigest() for data in read]
    return found
