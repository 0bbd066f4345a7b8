"""One line per request, without anything of what was asked.

A line has the template of the route and not its path, the name of the key and not the key, how
long each stage took, and the request id that the client was told. An error has its kind and where
it came from; its message may quote what a client sent, and stays out.
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
    """Writes a record as one line of JSON; its fields come in ``extra={"fields": …}``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **fields,
        }
        return json.dumps(line, ensure_ascii=True)


class TextLines(logging.Formatter):
    """Writes the same for eyes."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        said = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
        return f"{time} {record.levelname.lower()} {record.getMessage()} {said}".rstrip()


def write_lines(log_format: Literal["json", "text"]) -> None:
    """Let the lines of this process go to standard error, in this format from now on."""
    formatter = JsonLines() if log_format == "json" else TextLines()
    ours = [handler for handler in LOGGER.handlers if isinstance(handler, _Lines)]
    handler = ours[0] if ours else _Lines()
    handler.setFormatter(formatter)
    if not ours:
        LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    # Whoever has set up the root logger would write each line again.
    LOGGER.propagate = False


class _Lines(logging.StreamHandler[Any]):
    """Standard error as it is at the time of the line: servers and tests replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


def request_line(fields: Mapping[str, Any]) -> None:
    """Write the line of one request."""
    LOGGER.info("request", extra={"fields": fields})


def failure_line(error: BaseException, *, request_id: str, replica: str) -> None:
    """Write that a request met an error that nobody foresaw: kind and places, no message."""
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
