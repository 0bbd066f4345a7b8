"""Strict JSON parsing of request bodies: ambiguous or hostile documents are rejected.

Duplicate keys, NaN, lone surrogates, NUL, deep nesting and numbers with thousands of digits are
answered with 400 before an endpoint runs.
"""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import Request, Response
from fastapi.routing import APIRoute

from serve.http.problems import Problem, shortened

MAX_DEPTH = 32
"""Maximum nesting of lists and objects; the deepest valid message has 5 levels."""

MAX_VALUES = 65_536
"""Maximum values of one document. The largest valid message is a list of 50,000 phrases."""

_MAX_DIGITS = 40
_INLINE_BYTES = 64 << 10
"""Larger bodies, mostly images, are parsed in a thread, so that the event loop is not blocked."""
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NESTED = frozenset({str, list, dict})
# Surrogates and NUL can come only from escapes: the UTF-8 decoder rejects raw ones.
_SUSPECT = re.compile(rb"\\u(?:[dD][89a-fA-F]|0000)")


class StrictRoute(APIRoute):
    """Route whose JSON bodies are parsed with ``read_json`` instead of FastAPI's parser."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, called with a request whose JSON is already parsed."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            if is_json(request.headers.get("content-type", "")):
                body = await request.body()
                if body:
                    # Starlette's cache of the parsed body, so that it is parsed once. A subclass
                    # of Request would raise within FastAPI, which replaces every error there.
                    request._json = (
                        read_json(body)
                        if len(body) <= _INLINE_BYTES
                        else await asyncio.to_thread(read_json, body)
                    )
            return await handle(request)

        return strictly


def is_json(content_type: str) -> bool:
    """Return whether a content type denotes JSON."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )


def read_json(body: bytes) -> Any:
    """Return the value of a JSON document.

    Raises:
        Problem: 400 ``bad-json``, with the reason and, if known, the position; 413 for more than
            ``MAX_VALUES`` values.
    """
    _refuse_many(body)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad(f"byte {error.start} is not UTF-8") from None
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _bad(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise _bad(f"lists and objects nest deeper than {MAX_DEPTH}") from None
    _refuse_depth_and_suspects(value, suspect=_SUSPECT.search(body) is not None)
    return value


def _refuse_many(body: bytes) -> None:
    """Reject documents of millions of values before parsing, which would take seconds.

    Measured: parsing a body of 20 MB took up to 7 s, and listing its errors 14 s.
    """
    # Most bodies have few commas. Otherwise commas within strings are excluded, unless there are
    # so many strings that searching them takes too long.
    if body.count(b",") < MAX_VALUES:
        return
    strings = (body.count(b'"') - body.count(b'\\"')) // 2
    if strings >= MAX_VALUES or _STRING.sub(b"", body).count(b",") >= MAX_VALUES:
        raise Problem(
            413, "body-too-large", f"the body has more than {MAX_VALUES:,} values; send fewer"
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _bad(f"duplicate key {shortened(ascii(key))} in an object")
            seen.add(key)
    return found


def _whole(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _bad(f"a number has {len(digits)} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise _bad(f"{shortened(digits)} is too large for a number")
    return value


def _constant(name: str) -> NoReturn:
    raise _bad(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_whole, parse_float=_finite, parse_constant=_constant
)


def _refuse_depth_and_suspects(value: Any, *, suspect: bool) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise _bad(f"lists and objects nest deeper than {MAX_DEPTH}")
        below: list[Any] = []
        for item in level:
            match item:
                case dict():
                    below.extend(item.values())
                    if suspect:
                        below.extend(item)
                case list():
                    # Numbers are skipped, so that long lists of them are fast.
                    below.extend(x for x in item if type(x) in _NESTED)
                case str() if suspect:
                    _refuse_suspects(item)
        level, depth = below, depth + 1


def _refuse_suspects(text: str) -> None:
    if "\0" in text:
        raise _bad("a string contains U+0000")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise _bad("a string contains a lone surrogate")


def _bad(reason: str) -> Problem:
    return Problem(400, "bad-json", f"the body is not valid JSON: {reason}")
