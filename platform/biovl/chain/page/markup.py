"""Macros of ``parts.html.j2`` as functions that return HTML; all text is escaped."""

import base64
import unicodedata
from collections.abc import Callable
from typing import Any, Protocol, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def _printable(value: Any) -> Any:
    """Return text without control characters (NUL, lone surrogates, direction overrides)."""
    if isinstance(value, Markup):
        return value
    return "".join(
        c
        for c in str("" if value is None else value)
        if c in "\n\t" or (unicodedata.category(c) not in ("Cc", "Cs", "Cn") and c not in _TURNING)
    )


def _data_url(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


_ENVIRONMENT = Environment(
    loader=PackageLoader("biovl.chain.page", ""),
    autoescape=True,
    finalize=_printable,
    undefined=StrictUndefined,
    trim_blocks=True,
)
_ENVIRONMENT.filters.update(data_url=_data_url, thousands="{:,}".format)


class _Parts(Protocol):
    def __getattr__(self, name: str) -> Callable[..., Markup]: ...


parts = cast(_Parts, _ENVIRONMENT.get_template("parts.html.j2").module)
"""A function for each macro; strings are escaped, unless they are ``Markup``."""
