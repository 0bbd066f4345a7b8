"""PMC packages in a folder or bucket: ``<id>/``, ``<id>.tar.gz``, tars of many, loose XML."""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from biovl import archives
from biovl.errors import ArtifactError, SourceError
from biovl.filesystems import open_location
from biovl.sources import Address, Package

NO_XML = "package has no XML"
EMPTY = "package is empty"
XML_TOO_LARGE = "xml too large"
UNREADABLE = "package cannot be read"

_ARCHIVE = re.compile(r"\.(?:tar|tar\.gz|tgz|tar\.bz2|tar\.xz)$", re.IGNORECASE)
_XML = re.compile(r"\.n?xml$", re.IGNORECASE)
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_ARTICLE_ROOT = re.compile(
    rb"<(?:[\w.-]+:)?(article|pmc-articleset|pmc-articles|OAI-PMH)[\s>/]", re.IGNORECASE
)
_SNIFFED_BYTES = 20_000


@dataclass(frozen=True, kw_only=True)
class Config:
    """Where the packages are, and how much of one is believed."""

    path: str
    """A folder or bucket of packages, one package, one archive or one XML file."""

    max_xml_mb: int = 100
    """Larger XML is a defect; the largest real articles have 30 MB."""

    max_file_mb: int = 512
    """Larger image files are not read; a TIFF of a whole slide may reach this."""

    max_package_mb: int = 8_192
    """What one package of an archive may unpack to: above it, it is taken for a bomb."""

    max_package_files: int = 200_000
    """Files that one package of an archive may hold; bulk archives have many articles a folder."""


def build(config: Config) -> "PackageSource":
    """Return the source."""
    return PackageSource(config)


class PackageSource:
    """Packages under one location."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def addresses(self) -> Iterator[Address]:
        """Return folders, archives and XML files in the order of their paths."""
        place = _open(self._config.path)
        kind = place.kind(place.path)
        if kind is None:
            raise SourceError(f"source.path: there is nothing at {self._config.path}")
        taken: set[str] = set()
        for path in [place.path] if kind == "file" else _walk(place, place.path, is_root=True):
            base = path.rstrip("/").rpartition("/")[2]
            name = _safe(_XML.sub("", _ARCHIVE.sub("", base)))
            if name in taken:
                relative = path.removeprefix(place.path)
                name = f"{name}-{hashlib.sha256(relative.encode()).hexdigest()[:8]}"
            taken.add(name)
            yield Address(place.uri(path), name)

    def read(self, address: Address) -> Iterator[Package]:
        """Return the packages at an address."""
        place = _open(self._config.path)
        path = place.path_of(address.uri)
        try:
            if address.uri.endswith("/"):
                yield from self._folder(address, place, path)
            elif _XML.search(path):
                yield from self._loose(address, place, path)
            else:
                yield from self._archive(address, place, path)
        # What was listed may be gone, locked or out of reach by now.
        except OSError as error:
            yield _broken(address, UNREADABLE, str(error)[:300])

    def _folder(self, address: Address, place: "_Place", path: str) -> Iterator[Package]:
        files = place.files(path)
        yield from self._packages(
            address.name,
            address.uri,
            files,
            lambda name: place.read(f"{path}/{name}"),
        )

    def _loose(self, address: Address, place: "_Place", path: str) -> Iterator[Package]:
        folder, _, base = path.rpartition("/")
        entries = place.list(folder)
        # XML files that share a folder share its media; each graphic says which is its own.
        files = {
            name: size
            for name, size in entries.files.items()
            if not (_XML.search(name) or _ARCHIVE.search(name))
        }
        files[base] = place.size(path)
        uri = address.uri[: -len(base)]
        yield from self._packages(
            address.name, uri, files, lambda name: place.read(f"{folder}/{name}")
        )

    def _archive(self, address: Address, place: "_Place", path: str) -> Iterator[Package]:
        config = self._config
        with place.filesystem.open_input_stream(path, compression=None) as stream:
            found = archives.folders(
                stream,
                is_whole=lambda folder: any("/" not in n and _XML.search(n) for n in folder.files),
                ignored=_is_hidden,
                max_bytes=config.max_package_mb * 1_000_000,
                max_files=config.max_package_files,
            )
            taken: set[str] = set()
            for folder in found:
                uri = f"{address.uri}#{folder.path}{'/' if folder.path else ''}"
                if folder.defect is not None:
                    name = address.name if folder.is_only else f"{address.name}_rest"
                    xml = next((n for n in sorted(folder.files) if _XML.search(n)), None)
                    yield Package(
                        name=name,
                        uri=uri + (xml or ""),
                        xml=folder.files[xml].read_bytes() if xml else None,
                        defect=folder.defect,
                        defect_detail=folder.detail,
                    )
                    continue
                base = folder.path.rpartition("/")[2]
                name = address.name if folder.is_only else f"{address.name}_{_safe(base)}"
                yield from self._packages(
                    _unique(name, taken),
                    uri,
                    {inner: at.stat().st_size for inner, at in folder.files.items()},
                    lambda inner, files=folder.files: _read_file(files[inner]),  # type: ignore[misc]
                )

    def _packages(
        self, name: str, uri: str, files: Mapping[str, int], read: Callable[[str], bytes]
    ) -> Iterator[Package]:
        """Yield the article of a folder; more than one where several XML files are articles."""
        config = self._config
        candidates = sorted(inner for inner in files if "/" not in inner and _XML.search(inner))
        media = {inner: size for inner, size in files.items() if inner not in candidates}

        def read_media(inner: str) -> bytes:
            if inner not in media:
                raise FileNotFoundError(f"{inner} is not in the package")
            if media[inner] > config.max_file_mb * 1_000_000:
                raise OSError(f"{inner} has {media[inner] / 1e6:.0f} MB, over {config.max_file_mb}")
            return read(inner)

        if not candidates:
            reason = NO_XML if files else EMPTY
            yield Package(name=name, uri=uri, defect=reason, defect_detail=_some(files))
            return
        articles: dict[str, bytes | None] = {}
        for inner in candidates:
            if files[inner] > config.max_xml_mb * 1_000_000:
                articles[inner] = None
                continue
            xml = read(inner)
            # Supplements may be XML too; alone, whatever it is is what there is to judge.
            if len(candidates) == 1 or _ARTICLE_ROOT.search(xml[:_SNIFFED_BYTES]):
                articles[inner] = xml
        if not articles:
            articles[candidates[0]] = read(candidates[0])
        for inner, content in articles.items():
            alone = len(articles) == 1
            yield Package(
                name=name if alone else f"{name}_{_safe(_XML.sub('', inner))}",
                uri=uri + inner,
                xml=content,
                files=media,
                read=read_media,
                defect=None if content is not None else XML_TOO_LARGE,
                defect_detail=None if content is not None else f"{files[inner]} bytes",
            )


@dataclass(frozen=True)
class _Entries:
    """What stands in one folder."""

    files: dict[str, int]
    folders: list[str]


class _Place:
    """A location to walk: a local folder, whose links may not lead outside it, or a bucket."""

    def __init__(self, filesystem: pafs.FileSystem, path: str, prefix: str) -> None:
        self.filesystem, self.path, self._prefix = filesystem, path.rstrip("/"), prefix
        self._is_local = isinstance(filesystem, pafs.LocalFileSystem)
        self._root = os.path.realpath(self.path) if self._is_local else ""

    def uri(self, path: str) -> str:
        return self._prefix + path

    def path_of(self, uri: str) -> str:
        return uri.removeprefix(self._prefix).rstrip("/")

    def kind(self, path: str) -> str | None:
        found = self.filesystem.get_file_info(path).type
        return {pafs.FileType.File: "file", pafs.FileType.Directory: "folder"}.get(found)

    def size(self, path: str) -> int:
        return int(self.filesystem.get_file_info(path).size or 0)

    def list(self, path: str) -> _Entries:
        """Return the files and folders in a folder, hidden ones and ones outside left out.

        Raises:
            OSError: If it cannot be listed.
        """
        files: dict[str, int] = {}
        folders: list[str] = []
        if self._is_local:
            with os.scandir(path) as entries:
                for entry in entries:
                    if _is_hidden(entry.name) or (entry.is_symlink() and self._leads_out(entry)):
                        continue
                    if entry.is_dir():
                        folders.append(entry.name)
                    # Not a pipe or a device: opening one may wait for ever.
                    elif entry.is_file() and stat.S_ISREG(entry.stat().st_mode):
                        files[entry.name] = entry.stat().st_size
        else:
            for info in self.filesystem.get_file_info(pafs.FileSelector(path)):
                if info.type == pafs.FileType.Directory:
                    folders.append(info.base_name)
                elif not _is_hidden(info.base_name):
                    files[info.base_name] = info.size
        return _Entries(dict(sorted(files.items())), sorted(folders))

    def files(self, path: str) -> dict[str, int]:
        """Return every file below a folder by its path relative to it."""
        found: dict[str, int] = {}
        todo = [""]
        while todo:
            inner = todo.pop()
            entries = self.list(f"{path}/{inner}".rstrip("/"))
            prefix = f"{inner}/" if inner else ""
            found |= {prefix + name: size for name, size in entries.files.items()}
            todo += [prefix + name for name in entries.folders]
        return found

    def read(self, path: str) -> bytes:
        with self.filesystem.open_input_stream(path, compression=None) as stream:
            data: bytes = stream.read()
        return data

    def _leads_out(self, entry: "os.DirEntry[str]") -> bool:
        target = os.path.realpath(entry.path)
        return not (target + os.sep).startswith(self._root + os.sep) or (
            # A folder that holds itself.
            entry.is_dir()
            and (os.path.realpath(os.path.dirname(entry.path)) + os.sep).startswith(target + os.sep)
        )


def _open(location: str) -> _Place:
    try:
        filesystem, path = open_location(location)
    except ArtifactError as error:
        raise SourceError(f"source.path: {error}") from error
    prefix = "file://" if isinstance(filesystem, pafs.LocalFileSystem) else "s3://"
    return _Place(filesystem, path, prefix)


def _walk(place: _Place, path: str, *, is_root: bool) -> Iterator[str]:
    """Yield the packages below a folder: folders end in a slash, archives and XML files do not."""
    try:
        entries = place.list(path)
    except OSError as error:
        if is_root:
            raise SourceError(f"source.path: {path} cannot be listed: {error}") from error
        yield path + "/"
        return
    xml = [name for name in entries.files if _XML.search(name)]
    bundles = [name for name in entries.files if _ARCHIVE.search(name)]
    # Inside a package, archives are supplements and folders hold its media.
    is_package = bool(xml) and not (is_root and (len(xml) > 1 or bundles or entries.folders))
    if is_package or not (xml or bundles or entries.folders):
        # An empty source is an error of the user's and not a package.
        if not is_root or entries.files:
            yield path + "/"
        return
    inner = [*xml, *bundles] if is_root else bundles
    for name in sorted([*inner, *entries.folders]):
        if name in entries.folders:
            yield from _walk(place, f"{path}/{name}", is_root=False)
        else:
            yield f"{path}/{name}"


def _broken(address: Address, defect: str, detail: str) -> Package:
    return Package(name=address.name, uri=address.uri, defect=defect, defect_detail=detail)


def _read_file(path: Path) -> bytes:
    return path.read_bytes()


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in path.split("/"))


def _safe(name: str) -> str:
    return _NOT_IN_NAME.sub("-", name).strip("-.")[:120] or "package"


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    taken.add(candidate)
    return candidate


def _some(files: Mapping[str, int]) -> str | None:
    return ", ".join(sorted(files)[:5]) or None
