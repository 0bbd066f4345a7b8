"""Untrusted tar and zip archives, read once and yielded folder by folder.

Members are stored under generated numbers: no name in an archive is ever used as a path on this
machine, so nothing can be written or read outside. A folder that contains an article is yielded as
soon as the stream leaves it, or in parts if it holds many articles and no media, so that neither
memory nor disk use grows with the archive.
"""

import lzma
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO

from biovl.core.archive_members import Members
from biovl.core.filesystems import storage_problem

UNSAFE = "archive has an unsafe member"
UNREADABLE = "archive is truncated or corrupt"
TOO_LARGE = "archive unpacks to too much"

_BROKEN = (
    *(tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError),
    # zipfile raises the last two for encrypted members and for methods that it does not know.
    *(zipfile.BadZipFile, RuntimeError, NotImplementedError),
)
_MAX_NAME = 1_000
_BLOCK_BYTES = 1 << 20
_MAX_DEPTH = 50


class _TooLargeError(Exception):
    """An archive unpacks to more than its limits allow."""


@dataclass
class ArchiveFolder:
    """A folder of an archive, with all files below it."""

    path: str
    """Path inside the archive; empty for its root."""
    files: dict[str, Path] = field(default_factory=dict)
    """Local file with the content, by name relative to the folder; valid until the next folder is
    requested."""
    defect: str | None = None
    detail: str | None = None
    is_only: bool = False
    """Whether the archive contains nothing but this folder."""
    is_part: bool = False
    """Whether another part of the same folder was yielded before or will follow."""

    def take(self, inner: "ArchiveFolder") -> None:
        """Move the files of a folder below this one into it."""
        prefix = f"{inner.path}/"[len(self.path) + 1 if self.path else 0 :]
        self.files |= {prefix + name: place for name, place in inner.files.items()}
        self.defect, self.detail = self.defect or inner.defect, self.detail or inner.detail


def folders(
    stream: BinaryIO,
    *,
    members: Callable[[BinaryIO, int], Members],
    is_whole: Callable[[ArchiveFolder], bool],
    is_part: Callable[[ArchiveFolder], bool],
    ignored: Callable[[str], bool],
    max_bytes: int,
    max_files: int,
) -> Iterator[ArchiveFolder]:
    """Yield an archive's folders in stream order, each once and with everything below it.

    Args:
        stream: The archive, compressed or not.
        members: ``tar_members``, or ``zip_members`` of a seekable stream.
        is_whole: Whether a folder that the stream has left can be yielded; otherwise its files go
            to the parent folder, and the remaining ones are yielded at the end as the root folder.
        is_part: Whether the files of a folder so far can be yielded although more may follow.
        ignored: Members to skip, by name.
        max_bytes: Maximum size, and ...
        max_files: ... maximum number of files that one yielded folder may unpack to.
    """
    with tempfile.TemporaryDirectory(prefix="biovl-") as scratch:
        reader = _Reader(Path(scratch), members, is_whole, is_part, ignored, max_bytes, max_files)
        # One folder is held back: a defect of the archive belongs to its only package.
        held: tuple[ArchiveFolder, Path] | None = None
        is_only = True
        for whole in reader.read(stream):
            if held is not None:
                is_only = False
                yield held[0]
                shutil.rmtree(held[1])
            held = whole
        last = held[0] if held is not None else ArchiveFolder("")
        if reader.failure is None and reader.unsafe:
            reader.failure = UNSAFE, ", ".join(reader.unsafe[:5])
            if not is_only:
                # An unsafe member cannot be attributed to one of several packages.
                yield last
                last = ArchiveFolder("")
        if reader.failure is not None:
            last.defect, last.detail = reader.failure
        last.is_only = is_only
        yield last


@dataclass
class _Reader:
    """Reads a stream once and tracks the open folders, outermost first, and their files."""

    scratch: Path
    members: Callable[[BinaryIO, int], Members]
    is_whole: Callable[[ArchiveFolder], bool]
    is_part: Callable[[ArchiveFolder], bool]
    ignored: Callable[[str], bool]
    max_bytes: int
    max_files: int
    failure: tuple[str, str] | None = None
    """Why the stream could not be read to its end."""
    unsafe: list[str] = field(default_factory=list)
    """Names of members that were skipped as unsafe."""

    def __post_init__(self) -> None:
        self._open = [ArchiveFolder("")]
        self._given_out = self._passed_over = 0
        self._new_place()

    def _new_place(self) -> None:
        self._place = Path(tempfile.mkdtemp(dir=self.scratch))
        self._bytes = self._count = 0

    def read(self, stream: BinaryIO) -> Iterator[tuple[ArchiveFolder, Path]]:
        """Yield each complete folder and where its files are; the remaining files come last."""
        try:
            for member, source in self.members(stream, self.max_bytes):
                name = _safe_name(member)
                if name is None:
                    self.unsafe.append(f"{member.name!r}"[:200])
                if name is None or source is None or self.ignored(name):
                    self._pass_over(member.size)
                else:
                    yield from self._enter(name.rpartition("/")[0])
                    self._add(name, member.size, source)
                    if self.is_part(self._open[-1]):
                        yield self._part()
        except _TooLargeError as error:
            self.failure = TOO_LARGE, str(error)
        except _BROKEN as error:
            # A full disk is not a defect of an archive: the run stops and can be resumed.
            if isinstance(error, OSError) and storage_problem(error, "") is not None:
                raise
            self.failure = UNREADABLE, f"{type(error).__name__}: {error}"[:300]
        if self.failure is not None:
            yield self._unfinished(), self._place
            return
        yield from self._enter("")
        if self._open[0].files or not self._given_out:
            yield self._open[0], self._place

    def _enter(self, path: str) -> Iterator[tuple[ArchiveFolder, Path]]:
        """Leave folders that do not contain a path, enter those that do; yield complete ones."""
        while not _is_below(path, self._open[-1].path):
            left = self._open.pop()
            if left.is_part and not left.files:
                continue
            if left.is_part or self.is_whole(left):
                place = self._place
                self._move_rest()
                self._given_out += 1
                yield left, place
            else:
                self._open[-1].take(left)
        here = self._open[-1].path
        for part in path[len(here) :].strip("/").split("/"):
            if part:
                here = f"{here}/{part}" if here else part
                self._open.append(ArchiveFolder(here))

    def _part(self) -> tuple[ArchiveFolder, Path]:
        """Return the innermost folder with its files so far, and replace it by an empty one."""
        part, place = self._open[-1], self._place
        part.is_part = True
        self._open[-1] = ArchiveFolder(part.path, is_part=True)
        self._move_rest()
        self._given_out += 1
        return part, place

    def _add(self, name: str, size: int, source: IO[bytes]) -> None:
        """Store one file of the innermost folder."""
        self._bytes += size
        self._count += 1
        if self._bytes > self.max_bytes or self._count > self.max_files:
            raise _TooLargeError(f"{self._count} files, {self._bytes / 1e6:.0f} MB")
        place = self._place / str(self._count)
        with open(place, "wb") as target:
            shutil.copyfileobj(source, target, _BLOCK_BYTES)
        if place.stat().st_size != size:
            raise EOFError(f"{name} ends after {place.stat().st_size} of {size} bytes")
        self._open[-1].files[name.rpartition("/")[2]] = place

    def _pass_over(self, size: int) -> None:
        self._passed_over += size
        if self._passed_over > self.max_bytes:
            raise _TooLargeError(f"{self._passed_over / 1e6:.0f} MB that are not read")

    def _unfinished(self) -> ArchiveFolder:
        """Return the name of the member that was being read when the stream ended."""
        while len(self._open) > 1 and not self.is_whole(self._open[-1]):
            left = self._open.pop()
            self._open[-1].take(left)
        return self._open[-1]

    def _move_rest(self) -> None:
        """Move the files of open folders: their old place is deleted with the yielded folder."""
        old = self._place
        self._new_place()
        for folder in self._open:
            for name, place in folder.files.items():
                if place.parent == old:
                    self._count += 1
                    self._bytes += place.stat().st_size
                    folder.files[name] = Path(shutil.move(place, self._place / str(self._count)))


def _safe_name(member: tarfile.TarInfo) -> str | None:
    """Return a member's normalized name, or None if it is unsafe."""
    name = member.name
    if not (member.isreg() or member.isdir()) or member.issparse():
        return None
    if name.startswith(("/", "\\")) or "\0" in name or "\\" in name or len(name) > _MAX_NAME:
        return None
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or len(parts) > _MAX_DEPTH or (parts and ":" in parts[0][:2]):
        return None
    return "/".join(parts)


def _is_below(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(folder + "/")
