"""Detection of the columns of a table of multiple-choice questions.

Of these layouts the first that matches is used:

    captions.classification_0.options, .answer_idx    µ-Bench: the authors' captions, two wordings
    options, answer_idx (or answer), captions         Biomedica2025EvalSet, with captions or without
    questions.classification.options, .answer         µ-Bench without captions
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.core.folders import Folder


def detect_settings(path: str, about: str = "classification") -> dict[str, Any]:
    """Return the settings detected by ``layout`` from the first Parquet file of a folder.

    Returns no settings for an unreadable file: reading the data reports the error.
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
    """Return the settings for the columns of a table; empty if it has no options with answers.

    Args:
        schema: Schema of the table.
        about: Group of µ-Bench's questions to use.
    """
    settings = (
        _with_captions(schema, about) or _with_options(schema) or _with_questions(schema, about)
    )
    if not settings:
        return {}
    task = next((name for name in ("task", "dataset") if name in schema.names), "")
    return {"task": task, **settings}


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
    captions = "captions" if is_list(kind) or pa.types.is_string(kind) else ""
    return {"options": "options", "answer": answer, "captions": captions}


def _with_questions(schema: pa.Schema, about: str) -> dict[str, Any]:
    members = _members(schema, "questions")
    answer = _answer_in(members[about]) if about in members else ""
    if not answer:
        return {}
    inside = f"questions.{about}"
    return {"options": f"{inside}.options", "answer": f"{inside}.{answer}"}


def _members(schema: pa.Schema, column: str) -> dict[str, dict[str, pa.DataType]]:
    """Return the struct fields of a struct column, with the types of their own fields."""
    at = schema.field(column).type if column in schema.names else pa.null()
    inside = {item.name: item.type for item in at} if pa.types.is_struct(at) else {}
    return {
        name: {item.name: item.type for item in kind}
        for name, kind in inside.items()
        if pa.types.is_struct(kind)
    }


def _answer_in(columns: Mapping[str, pa.DataType]) -> str:
    """Return the answer column next to ``options``; empty if there are no options."""
    if not is_list(columns.get("options", pa.null())):
        return ""
    return next((name for name in ("answer_idx", "answer") if name in columns), "")


def is_list(kind: pa.DataType) -> bool:
    """Return whether a column holds lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
