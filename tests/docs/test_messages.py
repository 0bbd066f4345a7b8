"""Messages that pages quote are those of the code, so that a search for one finds its solution."""

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

_FIELD = "\0"
_CODE = re.compile(r"`([^`]+)`")
_JOINTS = re.compile(r"…|[:;,.] |\.$|: ?$")
"""Where a message is joined from several: a sentence that another one contains, or a variable."""
_FOREIGN = (
    *("[Errno", "curlCode", "Could not", "RuntimeError", "AttributeError", "ModuleNotFoundError"),
    *("operator torchvision", "module 'platform'", "No module named", "can't open file"),
    *("/pipelines/harvest.py", "command not found", "Token authentication", "is invalid or"),
    *("WARNING", "The object store is", "bytes available", "Failed to determine"),
    *("ray_current_cluster", "ray "),
)
"""Beginnings of messages of others: the system, Python, PyTorch, Ray."""


@functools.cache
def strings() -> str:
    """Return all strings of the product, with a mark where an f-string has a value."""
    found = set()
    for folder in ("platform", "serve", "tune"):
        for path in (ROOT / folder).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            for node in nodes:
                if id(node) in docs:
                    continue
                if isinstance(node, ast.JoinedStr):
                    parts = [
                        ast.literal_eval(x) if isinstance(x, ast.Constant) else _FIELD
                        for x in node.values
                    ]
                    found.add("".join(parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return "\n\n".join(sorted(found))


@functools.cache
def is_in_code(text: str) -> bool:
    """Return whether a string has a text; its numbers may be values."""
    words = [
        f"(?:{re.escape(word)}|{_FIELD})" if re.search(r"\d", word) else re.escape(word)
        for word in re.findall(r"\w+(?:[.,]\d+)*|\W", text)
    ]
    return re.search("".join(words), strings()) is not None


def is_quoted_well(text: str) -> bool:
    """Return whether strings have a text, or its halves, one of which is a value in the other."""
    cuts = [match.start() for match in re.finditer(" ", text)]
    halves = [(text[:cut], text[cut + 1 :]) for cut in cuts]
    long = [pair for pair in halves if min(map(len, pair)) >= 6]
    return is_in_code(text) or any(is_in_code(one) and is_in_code(two) for one, two in long)


def quoted(page: str, first: str, cell: int) -> Iterator[str]:
    """Yield the messages in a column of the tables that begin with ``first``, in their parts."""
    for table in re.findall(rf"^\| {first}.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE):
        for row in table.splitlines():
            for message in _CODE.findall(row.split(" | ")[cell]):
                for part in map(str.strip, _JOINTS.split(message)):
                    if re.search(r"[a-z]{3}", part) and not part.startswith(_FOREIGN):
                        yield part


@pytest.mark.parametrize(
    ("page", "first", "cell"),
    [("troubleshooting.md", "seen", 0), ("operations.md", r"job \| warning", 1)],
)
def test_quoted_messages_are_those_of_the_code(page: str, first: str, cell: int) -> None:
    parts = list(quoted((ROOT / "docs" / page).read_text(), first, cell))
    assert len(parts) > 25
    assert [part for part in parts if not is_quoted_well(part)] == []


def test_a_message_that_no_code_has_is_noticed() -> None:
    assert is_quoted_well("the median loss of the last 100 steps is 7.91")
    assert not is_quoted_well("the median loss of the previous 100 steps is 7.91")
