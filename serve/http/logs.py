"""Access log: one line per request, without request content.

A line contains the route template (not the path), the name of the API key (not the key), the
duration of each stage, and the request id that the client received. For errors it contains the
exception type and the stack frames, not the message, which may quote request content.
"""

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

LOGGER = logging.getLogger("serve.requests")
_MAX_FRAMES = 30


class JsonLines(logging.Formatter):
    """Log formatter: one line of JSON per record; fields are in ``extra={"fields": …}``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON."""
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **fields,
        }
        return json.dumps(line, ensure_ascii=True)


class TextLines(logging.Formatter):
    """Log formatter: human-readable text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of text."""
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        text = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
        return f"{time} {record.levelname.lower()} {record.getMessage()} {text}".rstrip()


def write_lines(log_format: Literal["json", "text"]) -> None:
    """Configure the access log of this process: standard error, in the given format."""
    formatter = JsonLines() if log_format == "json" else TextLines()
    ours = [handler for handler in LOGGER.handlers if isinstance(handler, _Lines)]
    handler = ours[0] if ours else _Lines()
    handler.setFormatter(formatter)
    if not ours:
        LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    # A configured root logger would write each line a second time.
    LOGGER.propagate = False


class _Lines(logging.StreamHandler[Any]):
    """Write to the current ``sys.stderr``, which servers and tests replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def request_line(fields: Mapping[str, Any]) -> None:
    """Write the access log line of a request."""
    LOGGER.info("request", extra={"fields": fields})


def log_failure(error: BaseException, *, request_id: str, replica: str) -> None:
    """Log an unexpected exception: its type and stack frames, without its message."""
    LOGGER.error(
        "failure",
        extra={
            "fields": {
                "request_id": request_id,
                "replica": replica,
                "error": _kinds(error),
                "at": _places(error),
            }
        },
    )


def _kinds(error: BaseException) -> str:
    kinds: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(kinds) < 5:
        kinds.append(type(cause).__qualname__)
        cause = cause.__cause__
    return " from ".join(kinds)


def _places(error: BaseException) -> list[str]:
    # Not traceback.format_exception: it quotes messages, and messages quote requests.
    frames = traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
