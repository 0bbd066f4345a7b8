"""Downloaded files of a data set: those below a local folder, and the members of its archives."""

import contextlib
import csv
import gzip
import hashlib
import io
import os
import posixpath
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from biovl.core import spreadsheets
from biovl.core.errors import SourceError
from biovl.core.filesystems import is_hidden, printable, storage_problem

IMAGES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".dcm", ".dicom")
"""File suffixes of images."""

_LABELS = (".csv", ".csv.gz", ".tsv", ".json", ".jsonl", ".token", "_y.h5", "_y.h5.gz")
"""Ends of the names of files with labels, which are small; those of texts of one image are not."""

_TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_DAMAGED = (
    *(zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error),
    *(NotImplementedError, RuntimeError),  # A method of compression or encryption of zip.
)
_SHOWN = 12


class RawFiles:
    """Files by their path relative to the folder, with ``/``; hidden ones are skipped.

    A member of ``a.zip`` is called ``a.zip/MEMBER``. Tar archives are unpacked to a temporary
    folder. Members that also exist unpacked, next to the archive or in a folder of its name, are
    skipped. Use as a context manager.
    """

    def __init__(self, folder: str, get: str) -> None:
        """List the files.

        Args:
            folder: A local folder, or a single file or archive.
            get: Where the data set is available, for error messages.

        Raises:
            SourceError: If the folder does not exist, or an archive is damaged.
        """
        self.folder, self._get = folder, get
        self.warnings: list[str] = []
        """Sentences about the files that a user should know; see ``warn``."""
        if "://" in folder:
            raise SourceError(f"raw: {folder} is not local: copy the files to a local folder first")
        self._root = Path(folder).expanduser()
        if not self._root.exists():
            raise SourceError(f"raw: there is no folder {folder}. Expected the files from {get}")
        self._exit = contextlib.ExitStack()
        self._paths: dict[str, Path] = {}
        self._members: dict[str, tuple[zipfile.ZipFile, str]] = {}
        with contextlib.ExitStack() as on_error:
            on_error.callback(self._exit.close)
            for name, path in _files_below(self._root):
                if name.lower().endswith(".zip"):
                    self._add_zip(name, path)
                elif name.lower().endswith(_TARS):
                    self._add_tar(name, path)
                else:
                    self._paths[name] = path
            on_error.pop_all()
        self.names = sorted([*self._paths, *self._members])
        """All names, sorted."""

    def __enter__(self) -> "RawFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def __contains__(self, name: object) -> bool:
        """Return whether there is a file of this name."""
        return name in self._paths or name in self._members

    def warn(self, sentence: str) -> None:
        """Add a warning, once."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            OSError: If it cannot be read, or its archive is damaged at this member.
        """
        if name in self._paths:
            return self._paths[name].read_bytes()
        archive, member = self._members[name]
        try:
            return archive.read(member)
        except _DAMAGED as error:
            raise OSError(f"{name}: {error}") from error

    def text(self, name: str) -> str:
        """Return a file as text; byte-order marks, UTF-16 and cp1252 are read.

        Raises:
            SourceError: If it cannot be read.
        """
        try:
            data = self.read(name)
        except OSError as error:
            raise self.damaged(name, error) from error
        try:
            return spreadsheets.decode(data)
        except UnicodeDecodeError:
            self._warn_of_cp1252(name)
            return data.decode("cp1252", "replace")

    def _warn_of_cp1252(self, name: str) -> None:
        self.warn(f"{name} is not UTF-8 and was read as cp1252")

    def local_path(self, name: str) -> Path:
        """Return the path of a file on disk; a member of a zip archive is unpacked.

        Raises:
            SourceError: If the archive is damaged.
        """
        if name in self._paths:
            return self._paths[name]
        archive, member = self._members[name]
        path = self.scratch() / posixpath.basename(name)
        try:
            with archive.open(member) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        except _DAMAGED as error:
            raise self.damaged(name, error) from error
        return path

    def scratch(self) -> Path:
        """Return a new temporary folder, deleted with this object."""
        return Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="biovl-")))

    def named(self, *names: str) -> str | None:
        """Return the file of one of these names in any folder, or None; case is ignored.

        Raises:
            SourceError: If several files have the name.
        """
        wanted = {name.lower() for name in names}
        matches = [name for name in self.names if posixpath.basename(name).lower() in wanted]
        if len(matches) > 1:
            raise SourceError(
                f"{self.folder} has several files called {' or '.join(names)}: "
                f"{', '.join(matches[:_SHOWN])}. Leave one of them there"
            )
        return matches[0] if matches else None

    def required(self, *names: str) -> str:
        """Return the file of one of these names.

        Raises:
            SourceError: If there is none, or several.
        """
        name = self.named(*names)
        if name is None:
            raise self.missing(" or ".join(names))
        return name

    def images(self, *, below: str = "") -> list[str]:
        """Return the names of image files, recognised by suffix, that start with ``below``."""
        return [
            name for name in self.names if name.startswith(below) and name.lower().endswith(IMAGES)
        ]

    def missing(self, expected: str) -> SourceError:
        """Return the error about a missing file: expected, found, and where to download it."""
        shown = ", ".join(self.names[:_SHOWN]) or "no files"
        more = f" … ({len(self.names):,} files)" if len(self.names) > _SHOWN else ""
        return SourceError(
            f"{self.folder}: {expected} was not found. Found: {shown}{more}. "
            f"Download it from {self._get}"
        )

    def damaged(self, name: str, error: Exception) -> SourceError:
        """Return the error about a truncated or damaged file."""
        return SourceError(
            f"{self.folder}/{name} is truncated or damaged ({type(error).__name__}: {error}). "
            f"Download it again from {self._get}"
        )

    def table(
        self, name: str, needed: Sequence[str], *, keep: Sequence[str] | None = None
    ) -> list[dict[str, str]]:
        """Return the rows of a CSV file by column; warn of its encoding, or a truncated end.

        Gzip, byte-order marks, any line ends and delimiters, UTF-16, and cp1252 are read. Column
        names match regardless of case and surrounding spaces; ``needed`` and ``keep`` columns are
        returned as spelled there.

        Args:
            name: The file.
            needed: Columns that it must have.
            keep: Columns to return with ``needed``, to save memory for large tables; None: all.

        Raises:
            SourceError: If the file is not a table, lacks a needed column, or has a quoted cell
                that does not end.
        """
        data = self.read(name)
        if data.startswith(b"\x1f\x8b"):
            try:
                data = gzip.decompress(data)
            except (OSError, *_DAMAGED) as error:
                raise self.damaged(name, error) from error
        encoding = spreadsheets.encoding_of(data[:4])
        try:
            return self._rows(name, _text(data, encoding), needed, keep)
        except UnicodeDecodeError:
            self._warn_of_cp1252(name)
            return self._rows(name, _text(data, "cp1252"), needed, keep)

    def _rows(
        self, name: str, text: TextIO, needed: Sequence[str], keep: Sequence[str] | None
    ) -> list[dict[str, str]]:
        found, last = list[dict[str, str]](), list[str]()
        try:
            rows = spreadsheets.rows(text, delimiter=_delimiter(text, needed), needed=())
            _, header = next(rows, (0, []))
            columns = self._columns(name, header, needed, keep or ())
            shown = [
                (at, column)
                for at, column in enumerate(columns)
                if keep is None or column in {*needed, *keep}
            ]
            for _, cells in rows:
                if any(cell.strip() for cell in cells):
                    last = cells
                    row = [*cells, *[""] * (len(columns) - len(cells))]
                    found.append({column: row[at].strip() for at, column in shown})
        except csv.Error as error:
            raise SourceError(
                f"{self.folder}/{name} cannot be read as a table: {error}. It may be truncated; it "
                f"is from {self._get}"
            ) from error
        if found and len(last) < len(columns):
            self.warn(f"{name} ends within a row: it may be truncated")
        return found

    def _columns(
        self, name: str, header: Sequence[str], needed: Sequence[str], keep: Sequence[str]
    ) -> list[str]:
        """Return the names of the columns, of which those asked for are spelled as given."""
        spelled = {column.lower(): column for column in (*keep, *needed)}
        columns = [spelled.get(cell.strip().lower(), cell.strip()) for cell in header]
        lacking = [column for column in needed if column not in columns]
        twice = [column for column, count in Counter(columns).items() if count > 1 and column]
        if lacking or twice:
            problem = f"no column {lacking[0]}" if lacking else f"two columns {twice[0]}"
            raise SourceError(
                f"{self.folder}/{name} has {problem}; its columns are {', '.join(columns[:40])}"
            )
        return columns

    def _add_zip(self, name: str, path: Path) -> None:
        try:
            archive = self._exit.enter_context(zipfile.ZipFile(path))
        except (OSError, *_DAMAGED) as error:
            raise self.damaged(name, error) from error
        # Some programs of Windows write backslashes.
        members = {
            item.filename.replace("\\", "/").removeprefix("./"): item.filename
            for item in archive.infolist()
            if not item.is_dir()
        }
        self._members |= {
            f"{name}/{inner}": (archive, member)
            for inner, member in members.items()
            if not is_hidden(inner) and not _is_unpacked(path, inner)
        }

    def _add_tar(self, name: str, path: Path) -> None:
        folder: Path | None = None
        try:
            with tarfile.open(path) as archive:
                for number, member in enumerate(archive):
                    if not member.isfile() or is_hidden(member.name.removeprefix("./")):
                        continue
                    inner = member.name.removeprefix("./").lstrip("/")
                    if _is_unpacked(path, inner):
                        continue
                    folder = folder or self.scratch()
                    # No name in an archive is used as a path.
                    place = folder / str(number)
                    source = archive.extractfile(member)
                    assert source is not None
                    with source, open(place, "wb") as target:
                        shutil.copyfileobj(source, target, 1 << 20)
                    self._paths[f"{name}/{inner}"] = place
        except (OSError, *_DAMAGED) as error:
            full = isinstance(error, OSError) and storage_problem(error, tempfile.gettempdir())
            raise full or self.damaged(name, error) from error


def _text(data: bytes, encoding: str) -> TextIO:
    """Return bytes as text; only those of cp1252 that have no letter are replaced."""
    errors = "replace" if encoding == "cp1252" else "strict"
    return io.TextIOWrapper(io.BytesIO(data), encoding, errors, newline="")


def _delimiter(text: TextIO, needed: Sequence[str]) -> str:
    """Return the delimiter with which a header has the needed columns, else most columns."""
    header, wanted = text.readline(), {name.lower() for name in needed}
    text.seek(0)

    def fit(delimiter: str) -> tuple[bool, int]:
        names = next(csv.reader([header], delimiter=delimiter), [])
        return wanted <= {name.strip().lower() for name in names}, len(names)

    return max(",;\t|", key=fit)


def raw_fingerprint(folder: str) -> str:
    """Return a hash of the names and sizes of the files below a local folder, and of their labels.

    Correcting a label may not change the size of its file. The hash therefore also covers the
    content of tables and label files, and the checksums in the directories of zip archives.
    """
    known = hashlib.sha256()
    for name, path in _files_below(Path(folder).expanduser()):
        known.update(f"{name}\t{path.stat().st_size}\n".encode())
        if name.lower().endswith(_LABELS):
            with open(path, "rb") as stream:
                known.update(hashlib.file_digest(stream, "sha256").digest())
        elif name.lower().endswith((".zip", ".npz")):
            # A damaged archive ends the run when it is opened.
            with contextlib.suppress(OSError, *_DAMAGED), zipfile.ZipFile(path) as archive:
                known.update(str([item.CRC for item in archive.infolist()]).encode())
    return known.hexdigest()


def _files_below(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file by its name relative to the folder; a file is the only one of its own.

    Links to folders are followed, once each.
    """
    if root.is_file():
        yield root.name, root
        return
    visited: set[str] = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        for name in sorted(files):
            path = Path(folder) / name
            if not is_hidden(name) and path.is_file():
                yield printable(path.relative_to(root).as_posix()), path


def _is_unpacked(archive: Path, member: str) -> bool:
    """Return whether a member of an archive also lies next to it, or in a folder of its name."""
    stem = archive.name.partition(".")[0]
    places = (archive.parent / member, archive.parent / stem / member)
    return any(place.is_file() for place in places)
