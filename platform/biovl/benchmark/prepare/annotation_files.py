"""Images that tables and JSON files describe: reading of these files, lookup of images by name."""

import json
import posixpath
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example

NO_IMAGE = "the image was not found"

_SHOWN = 5


@dataclass(frozen=True)
class Described:
    """Rows of a split; iteration builds the example of each row lazily."""

    rows: Sequence[Any]
    """Descriptions of the rows."""
    example: Callable[[Any], Example]
    """Returns the example of a row."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Example]:
        return map(self.example, self.rows)


class NamedImages:
    """Finds images among the raw files by the end of their path."""

    def __init__(self, raw: RawFiles) -> None:
        self._raw = raw
        self._of_base: dict[str, list[str]] = {}
        for name in raw.images():
            self._of_base.setdefault(posixpath.basename(name), []).append(name)
        self.missing: dict[str, None] = {}
        """Names that were not found, in the order of the lookups."""
        self.several: dict[str, None] = {}
        """Names of which several files exist."""

    def find(self, name: str) -> str | None:
        """Return the first file whose path ends with ``name``; None if there is none."""
        path = name.strip().replace("\\", "/").removeprefix("./")
        files = self._of_base.get(posixpath.basename(path), [])
        files = [file for file in files if file == path or file.endswith(f"/{path}")]
        if len(files) != 1:
            (self.several if files else self.missing)[path] = None
        return files[0] if files else None

    def warn(self, get: str) -> None:
        """Warn of images that were not found, or found more than once."""
        if self.missing:
            self._raw.warn(
                f"{len(self.missing):,} images were not found in {self._raw.folder}: "
                f"{_some(self.missing)}. Download them from {get}"
            )
        if self.several:
            self._raw.warn(
                f"{len(self.several):,} images exist more than once in {self._raw.folder}, the "
                f"first by its path is used: {_some(self.several)}"
            )


def _some(names: Collection[str]) -> str:
    return ", ".join(list(names)[:_SHOWN]) + " …" * (len(names) > _SHOWN)


def read_json(raw: RawFiles, name: str) -> Any:
    """Return the value of a JSON file.

    Raises:
        SourceError: If the file is truncated or not JSON.
    """
    try:
        return json.loads(raw.text(name))
    except ValueError as error:
        raise raw.damaged(name, error) from error
