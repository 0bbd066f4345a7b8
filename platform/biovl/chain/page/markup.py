"""Generate HTML from Python values; all text is escaped."""

import base64
import html
import unicodedata
from collections.abc import Iterable
from typing import Any

_EMPTY = {"img", "meta", "br", "rect", "circle", "path", "line", "polyline"}


class Html(str):
    """A string that is HTML already and is not escaped."""

    __slots__ = ()


def element(tag: str, *inside: Any, **attributes: Any) -> Html:
    """Return an HTML element. Strings in it are escaped, unless they are ``Html``.

    Args:
        tag: Name of the element.
        inside: Strings, numbers, elements or lists of them; None is omitted.
        attributes: Attributes by name; ``class_`` is class, ``view_box`` viewBox, any other ``_`` a
            hyphen. None and False omit the attribute, True gives it no value.
    """
    opened = tag
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        named = "viewBox" if name == "view_box" else name.rstrip("_").replace("_", "-")
        opened += f" {named}" if value is True else f' {named}="{_escaped(value)}"'
    if tag in _EMPTY:
        return Html(f"<{opened}/>")
    return Html(f"<{opened}>{joined(inside)}</{tag}>")


def joined(parts: Iterable[Any]) -> Html:
    """Return the concatenation of parts, escaped unless they are ``Html``."""
    return Html("".join(map(_inner, parts)))


def picture(data: bytes, *, alt: str, kind: str = "jpeg", **attributes: Any) -> Html:
    """Return an <img> element with the image embedded as a data URL."""
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return element("img", src=source, alt=alt, **attributes)


def _inner(part: Any) -> str:
    if part is None:
        return ""
    if isinstance(part, Html):
        return part
    if isinstance(part, str | int | float):
        return _escaped(part)
    return joined(part)


def _escaped(value: Any) -> str:
    # Remove control characters (NUL, lone surrogates, direction overrides) except line breaks.
    printable = (
        c
        for c in str(value)
        if c in "\n\t" or (unicodedata.category(c) not in ("Cc", "Cs", "Cn") and c not in _TURNING)
    )
    return html.escape("".join(printable), quote=True)


_TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
