"""Locations and the files below them, for local folders and buckets alike.

Errors of a disk or a bucket are separated here from errors of a single file (``storage_problem``):
the former end a job, which resumes once the storage works again, and are never the defect of a
package.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.fs as pafs

from biovl.core.errors import ArtifactError, StorageError

LINK = "a link out of the source or to a folder"
SPECIAL = "no file or folder"
NOT_UTF8 = "its name is not UTF-8"

_DISK = {
    errno.ENOSPC: "the disk is full: make room, or choose another folder",
    errno.EDQUOT: "the quota is used up: make room, or choose another folder",
    errno.EROFS: "the disk is mounted read-only: choose another folder",
    errno.EMFILE: "too many files are open in this process: raise the limit (ulimit -n 65536)",
    errno.ENFILE: "too many files are open on this machine: end what holds them",
    errno.ESTALE: "the network disk has lost the file: see whether its server is up",
    errno.ENOTCONN: "the disk is no longer connected: mount it again",
    errno.ETIMEDOUT: "the network disk does not answer: see whether its server is up",
}

_CREDENTIAL = (
    "give one that is valid in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and "
    "AWS_SESSION_TOKEN of one that expires) of every machine that works"
)
_BUCKET = (
    ("NO_SUCH_BUCKET", "there is no such bucket: check its name, or create it"),
    ("ExpiredToken", f"the credential has expired: {_CREDENTIAL}"),
    (
        "INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|InvalidToken|INVALID_CLIENT_TOKEN_ID|"
        "UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION_TOKEN",
        f"the credential is not accepted: {_CREDENTIAL}",
    ),
    # S3 sends no error message in responses to HEAD.
    (
        r"ACCESS_DENIED|HTTP status 40[13]\b",
        f"the bucket does not allow it. The credential is wrong or lacks this right: {_CREDENTIAL}",
    ),
    (
        r"HTTP status 400\b[^:]*: *(No response body|$)",
        f"the bucket refuses the request, as it does when a credential has expired: {_CREDENTIAL}",
    ),
    (
        "NETWORK_CONNECTION|REQUEST_TIMEOUT",
        "the bucket cannot be reached: look at the network, and at AWS_ENDPOINT_URL_S3 and "
        "AWS_ENDPOINT_URL if they are set",
    ),
    (
        r"SLOW_DOWN|THROTTLING|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|HTTP status 5\d\d",
        "the bucket returns errors, also after retries: try later, or with fewer workers",
    ),
    ("", "the bucket refuses the request"),
)
"""Text in an error of Arrow's S3 client -> explanation for the user. The first match is used."""

_OF_ONE_OBJECT = "INVALID_OBJECT_STATE|NO_SUCH_KEY|RESOURCE_NOT_FOUND"


def storage_problem(error: OSError, where: str) -> StorageError | None:
    """Return a StorageError for an error of a disk or bucket; None if it concerns a single file.

    Args:
        error: Error of a local file system, or of Arrow's S3 file system, which retries for six
            seconds.
        where: The location that was accessed, without credentials.

    Source:
        The error messages were observed with pyarrow 26, whose S3 errors have no codes.
    """
    text = str(error)
    if "AWS Error" in text:
        if re.search(_OF_ONE_OBJECT, text):
            return None
        meaning = next(meaning for found, meaning in _BUCKET if re.search(found, text))
    elif error.errno in _DISK:
        meaning = _DISK[error.errno]
    else:
        return None
    return StorageError(f"{where}: {meaning}. Found: {text[:500]}")


@contextlib.contextmanager
def translate_storage_errors(where: str) -> Iterator[None]:
    """Raise errors of a disk or bucket in the block as StorageError; others propagate unchanged.

    Raises:
        StorageError: If a disk or bucket fails.
    """
    try:
        yield
    except OSError as error:
        found = storage_problem(error, where)
        if found is None:
            raise
        raise found from error


def open_location(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a location and the path in it.

    Args:
        uri: A local path, ``file:///…`` or ``s3://bucket/prefix``. Credentials, region and
            endpoint come from the environment as for every AWS client (``AWS_ENDPOINT_URL_S3``,
            else ``AWS_ENDPOINT_URL``) or from the URI, as in
            ``s3://bucket/prefix?endpoint_override=localhost:9000&scheme=http``. Requests to
            ``s3://anonymous@bucket/prefix`` are not signed: for public buckets. Without a region
            in either place, the bucket's region is requested from AWS.

    Raises:
        ArtifactError: If the location is of an unsupported kind.
        StorageError: If the bucket's region must be requested, and the request fails.

    Source:
        arrow.apache.org/docs/cpp/api/filesystem.html, ``S3Options``; the two variables and the
        unsigned requests were also verified with pyarrow 26.
    """
    if not uri.strip() or "\0" in uri:
        raise ArtifactError(f"expected a folder or file, got {uri!r}: give its path")
    if slip := re.match(r"(s3|gs|gcs|file|https?|abfss?):/?(?=[^/])", uri):
        scheme = slip[1]
        raise ArtifactError(f"{uri} cannot be opened: expected {scheme}://{uri[slip.end() :]}")
    if "://" not in uri:
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(uri))
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
    except (ValueError, OSError, pa.ArrowNotImplementedError) as error:
        found = (
            storage_problem(error, without_credentials(uri)) if isinstance(error, OSError) else None
        )
        if found is not None:
            raise found from error
        raise ArtifactError(f"{uri} cannot be opened: {error}") from error
    return filesystem, path.rstrip("/")


def split_query(uri: str) -> tuple[str, str]:
    """Return a location without its query, and the query with ``?``; a local path has none."""
    path, mark, query = uri.partition("?") if "://" in uri else (uri, "", "")
    return path, mark + query


def below(uri: str, path: str) -> str:
    """Return the location of a path below another location, with the query of that one."""
    folder, query = split_query(uri)
    return f"{folder.rstrip('/')}/{path}{query}"


def base_name(uri: str) -> str:
    """Return the name of the file or folder at a location: the last part of its path."""
    return without_credentials(uri).rstrip("/").rpartition("/")[2]


def without_credentials(uri: str) -> str:
    """Return a location without credentials, for messages and logs."""
    return re.sub(r"://[^/@]*@", "://", split_query(uri)[0])


def is_within(inner: str, outer: str) -> bool:
    """Return whether a location equals another one or is below it; symbolic links are resolved.

    Args:
        inner: A local path or URI. It need not exist.
        outer: The same.
    """
    (kind, path), (other_kind, folder) = canonical_location(inner), canonical_location(outer)
    return kind == other_kind and (path == folder or path.startswith(folder.rstrip("/") + "/"))


def canonical_location(uri: str) -> tuple[str, str]:
    """Return the kind of a location and its normalized path; sends no request to a bucket."""
    scheme, separator, rest = without_credentials(uri).partition("://")
    if not separator:
        return "file", os.path.realpath(os.path.expanduser(uri))
    if scheme == "file":
        return "file", os.path.realpath(rest)
    return scheme, re.sub("/+", "/", rest).rstrip("/")


def display_path(filesystem: pafs.FileSystem, path: str) -> str:
    """Return a path for messages, without credentials: a local path or a URI."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        return path
    return f"{filesystem.type_name}://{path}"


@dataclass(frozen=True)
class Listing:
    """Contents of a folder, without hidden files."""

    files: dict[str, int] = field(default_factory=dict)
    """Name -> size in bytes, sorted."""
    folders: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Entries that are not read, with the reason; links to folders end in a slash."""


class Tree:
    """Untrusted files below a location; nothing outside a local folder is read.

    Links directly in the folder that point outside are followed: users may collect packages that
    way. Further below, links to files are followed only inside the folder, and links to folders
    never, which excludes loops. Pipes are not opened, since that may block.
    """

    def __init__(self, uri: str) -> None:
        self.filesystem, self.path = open_location(uri)
        self.is_local = isinstance(self.filesystem, pafs.LocalFileSystem)
        self._prefix = "file://" if self.is_local else f"{self.filesystem.type_name}://"
        folder = self.path if os.path.isdir(self.path) else os.path.dirname(self.path)
        self._root = os.path.realpath(folder) if self.is_local else ""

    def uri(self, path: str) -> str:
        """Return the URI of a path, without credentials."""
        return self._prefix + path

    def _described(self, path: str) -> str:
        return display_path(self.filesystem, path)

    def path_of(self, uri: str) -> str:
        """Return the path of a URI that ``Tree.uri`` returned, without a trailing slash."""
        return uri.removeprefix(self._prefix).rstrip("/")

    def has(self, path: str, kind: pafs.FileType) -> bool:
        """Return whether a path is an existing file or folder, as ``kind`` requires."""
        with translate_storage_errors(self._described(path)):
            return bool(self.filesystem.get_file_info(path).type == kind)

    def folder(self, path: str) -> Listing:
        """Return the files and subfolders of a folder.

        Raises:
            OSError: If it cannot be listed.
            StorageError: If the disk or bucket fails.
        """
        with translate_storage_errors(self._described(path)):
            return self._folder(path)

    def _folder(self, path: str) -> Listing:
        files: dict[str, int] = {}
        folders: list[str] = []
        refused: dict[str, str] = {}
        if self.is_local:
            with os.scandir(path) as entries:
                for entry in entries:
                    if is_hidden(entry.name):
                        continue
                    reason = self._refused(entry)
                    if reason is not None:
                        # The target of a broken link is unknown: it may have been a package.
                        is_folder = entry.is_dir() or not os.path.exists(entry)
                        refused[printable(entry.name) + "/" * is_folder] = reason
                    elif entry.is_dir():
                        folders.append(entry.name)
                    else:
                        files[entry.name] = entry.stat().st_size
        else:
            for info in self.filesystem.get_file_info(pafs.FileSelector(path)):
                if is_hidden(info.base_name):
                    continue
                if info.type == pafs.FileType.Directory:
                    folders.append(info.base_name)
                else:
                    files[info.base_name] = info.size
        return Listing(dict(sorted(files.items())), sorted(folders), dict(sorted(refused.items())))

    def below(self, path: str) -> Listing:
        """Return every file below a folder by its path relative to it; no folders.

        Raises:
            OSError: If a folder cannot be listed.
        """
        files: dict[str, int] = {}
        refused: dict[str, str] = {}
        todo = [""]
        while todo:
            inner = todo.pop()
            found = self.folder(f"{path}/{inner}".rstrip("/"))
            files |= {inner + name: size for name, size in found.files.items()}
            refused |= {inner + name: reason for name, reason in found.refused.items()}
            todo += [f"{inner}{name}/" for name in found.folders]
        return Listing(dict(sorted(files.items())), [], dict(sorted(refused.items())))

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of every file by its path below the location, sorted.

        A bucket is listed once. Entries that are not read, and folders that cannot be listed, have
        the size -1. Without anything at the location, the result is empty.

        Raises:
            StorageError: If the disk or bucket fails.
        """
        if self.has(self.path, pafs.FileType.File):
            return {"": self.filesystem.get_file_info(self.path).size}
        found = self._local_sizes() if self.is_local else self._bucket_sizes()
        return dict(sorted(found.items()))

    def _bucket_sizes(self) -> dict[str, int]:
        selector = pafs.FileSelector(self.path, recursive=True, allow_not_found=True)
        with translate_storage_errors(self._described(self.path)):
            found = self.filesystem.get_file_info(selector)
        sizes = {
            info.path[len(self.path) + 1 :]: info.size
            for info in found
            if info.type == pafs.FileType.File
        }
        return {name: size for name, size in sizes.items() if not is_hidden(name)}

    def _local_sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        todo = [""] if self.has(self.path, pafs.FileType.Directory) else []
        while todo:
            inner = todo.pop()
            try:
                found = self.folder(f"{self.path}/{inner}".rstrip("/"))
            except OSError:
                if not inner:
                    raise
                sizes[inner] = -1
                continue
            sizes |= {inner + name: size for name, size in found.files.items()}
            sizes |= dict.fromkeys((inner + name for name in found.refused), -1)
            todo += [f"{inner}{name}/" for name in found.folders]
        return sizes

    def refusal(self, path: str) -> str | None:
        """Return the reason why an entry of a listing is not read, or None if it may be read."""
        if path == self.path or not self.is_local:
            return None
        is_folder = os.path.isdir(path) and (not os.path.islink(path) or self._is_gathered(path))
        if self._is_reachable(path) and (is_folder or os.path.isfile(path)):
            return None
        folder, _, name = path.rpartition("/")
        refused = self.folder(folder).refused
        return refused.get(name) or refused.get(f"{name}/")

    def is_link(self, path: str) -> bool:
        """Return whether a path itself is a link."""
        return self.is_local and os.path.islink(path)

    def read(self, path: str, size_bytes: int | None = None) -> bytes:
        """Return the bytes of a file, or only the first ``size_bytes``.

        Raises:
            OSError: If they cannot be read.
            StorageError: If the disk or bucket fails.
        """
        with (
            translate_storage_errors(self._described(path)),
            self.filesystem.open_input_stream(path, compression=None) as stream,
        ):
            data: bytes = stream.read(size_bytes)
        return data

    def is_inside(self, path: str) -> bool:
        """Return whether a path is inside the location after links are resolved."""
        if not self.is_local:
            return True
        return os.path.realpath(path).startswith(os.path.join(self._root, ""))

    def _is_gathered(self, path: str) -> bool:
        """Return whether a path is a link directly in the folder that leads out of it."""
        if os.path.dirname(path) != self.path or not os.path.islink(path):
            return False
        target = os.path.realpath(path)
        around = os.path.join(target, "")
        inside = os.path.join(self._root, "")
        return (
            os.path.exists(target)
            and not around.startswith(inside)
            and not inside.startswith(around)
        )

    def _is_reachable(self, path: str) -> bool:
        if self.is_inside(path):
            return True
        first = path.removeprefix(self.path).strip("/").partition("/")[0]
        link = os.path.join(self.path, first)
        around = os.path.join(os.path.realpath(link), "")
        return self._is_gathered(link) and os.path.join(os.path.realpath(path), "").startswith(
            around
        )

    def _refused(self, entry: "os.DirEntry[str]") -> str | None:
        if printable(entry.name) != entry.name:
            return NOT_UTF8
        is_strange = entry.is_symlink() and not self._is_gathered(entry.path)
        if is_strange and (entry.is_dir() or not self._is_reachable(entry.path)):
            return LINK
        return None if entry.is_dir() or entry.is_file() else SPECIAL


def is_hidden(path: str) -> bool:
    """Return whether a path is hidden or created by an operating system, such as ``.DS_Store``."""
    return any(part.startswith((".", "__MACOSX")) for part in path.split("/"))


def printable(name: str) -> str:
    r"""Return a file name as text that can be stored: invalid UTF-8 bytes become ``\udcff``."""
    return name.encode("utf-8", "backslashreplace").decode()
