"""PMC packages in a folder or bucket: folders, XML files, tar and zip archives of one or more.

A folder with XML is a package: the other files in and below it are its media and supplements.
Archives and folders next to XML are only packages if the folder clearly holds several articles.
"""

import contextlib
import functools
import hashlib
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow.fs as pafs
from pydantic import PositiveInt

from biovl.core import archive_members, archives
from biovl.core.artifacts import MANIFEST
from biovl.core.errors import ArtifactError, SourceError
from biovl.core.filesystems import Listing, Tree, is_hidden, printable, storage_problem
from biovl.harvest.package_files import XML, FileGroup
from biovl.harvest.sources import Address, Package

NO_XML = "package has no XML"
EMPTY = "package is empty"
XML_TOO_LARGE = "xml too large"
UNREADABLE = "package cannot be read"
REFUSED = "package is refused"
"""A link out of the source, a pipe, a name that is not UTF-8."""

_ARCHIVE = re.compile(r"\.(?:tar|tar\.gz|tgz|tar\.bz2|tar\.xz|zip|meca)$", re.IGNORECASE)
_ZIP = re.compile(r"\.(?:zip|meca)$", re.IGNORECASE)
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_ZIP_BUFFER_BYTES = 1 << 20
_MANY = 1_000
"""Number of XML files without other files from which an archive counts as a bulk archive of
articles, so that no package waits for media."""
_NAME_LENGTH = 120
_MOST_MANIFEST_BYTES = 1 << 26


@dataclass(frozen=True, kw_only=True)
class Config:
    """Location and size limits of the packages."""

    path: str
    """A folder or bucket of packages, one package, one archive or one XML file."""

    max_xml_mb: PositiveInt = 100
    """Maximum size of an XML file in MB; a larger one is a defect. The largest real articles have
    30 MB."""

    max_file_mb: PositiveInt = 512
    """Maximum size of an image file in MB; larger ones are not read. A TIFF of a whole slide may be
    this large."""

    max_package_mb: PositiveInt = 8_192
    """Maximum unpacked size of one package of an archive; above it, it counts as an archive bomb.
    """

    max_package_files: PositiveInt = 200_000
    """Maximum number of files of one package of an archive; bulk archives have many articles per
    folder."""


def build(config: Config) -> "PackageSource":
    """Return the source for a configuration."""
    return PackageSource(config)


class PackageSource:
    """Source of packages in one folder or bucket."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._last_beside: tuple[str, Mapping[str, int]] | None = None

    def folders(self) -> list[str]:
        """Return the folders that are read with all their subfolders."""
        return [self._config.path]

    def listing(self) -> dict[str, int]:
        """Return the size in bytes of each file by its path; empty if the source is gone."""
        try:
            return self._tree.sizes()
        except OSError as error:
            raise SourceError(f"source.path: {self._config.path}: {error}") from error

    @functools.cached_property
    def _tree(self) -> Tree:
        try:
            return Tree(self._config.path)
        except ArtifactError as error:
            raise SourceError(f"source.path: {error}") from error

    def addresses(self) -> Iterator[Address]:
        """Yield folders, archives and XML files in the order of their paths."""
        tree, names = self._tree, _Names()
        try:
            is_file = tree.has(tree.path, pafs.FileType.File)
            if not is_file and not tree.has(tree.path, pafs.FileType.Directory):
                raise SourceError(f"source.path: there is nothing at {self._config.path}")
            for path in [tree.path] if is_file else _walk(tree):
                base = path.rstrip("/").rpartition("/")[2]
                stem = XML.sub("", _ARCHIVE.sub("", base))
                yield Address(tree.uri(path), names.new(stem, path.removeprefix(tree.path)))
        except OSError as error:
            raise SourceError(f"source.path: {self._config.path}: {error}") from error

    def read(self, address: Address) -> Iterator[Package]:
        """Yield the packages at an address."""
        tree = self._tree
        path = tree.path_of(address.uri)
        try:
            refusal = tree.refusal(path)
            if refusal is not None:
                yield _broken(address, REFUSED, refusal)
            elif address.uri.endswith("/"):
                yield from self._folder(address, path)
            elif XML.search(path):
                yield from self._loose(address, path)
            else:
                yield from self._archive(address, path)
        # What was listed may have been deleted, locked or become unavailable.
        except OSError as error:
            found = storage_problem(error, tree.uri(path))
            if found is not None:
                raise found from error
            yield _broken(address, UNREADABLE, str(error)[:300])

    def _folder(self, address: Address, path: str) -> Iterator[Package]:
        found = self._tree.below(path)
        refused = [f"{name}: {reason}" for name, reason in found.refused.items()]
        group = _group(self._tree, path, found.files, refused)
        yield from self._packages(address.name, address.uri, group, _Names())

    def _loose(self, address: Address, path: str) -> Iterator[Package]:
        folder, _, base = path.rpartition("/")
        size_bytes = self._tree.filesystem.get_file_info(path).size or 0
        group = _group(self._tree, folder, {**self._beside(folder), base: size_bytes})
        yield from self._packages(address.name, address.uri[: -len(base)], group, _Names())

    def _beside(self, folder: str) -> Mapping[str, int]:
        """Return the other files of a folder, shared by its XML files."""
        # Its XML files are read one after the other: the folder is listed once for all of them.
        if self._last_beside is None or self._last_beside[0] != folder:
            files = self._tree.folder(folder).files
            shared = {n: files[n] for n in files if not (XML.search(n) or _ARCHIVE.search(n))}
            self._last_beside = folder, shared
        return self._last_beside[1]

    def _archive(self, address: Address, path: str) -> Iterator[Package]:
        config, names = self._config, _Names()
        with self._opened_archive(path) as (stream, members):
            for folder in archives.folders(
                stream,
                members=members,
                is_whole=_is_package,
                is_part=_is_bulk,
                ignored=is_hidden,
                max_bytes=config.max_package_mb * 1_000_000,
                max_files=config.max_package_files,
            ):
                place = f"{address.uri}#{printable(folder.path)}{'/' if folder.path else ''}"
                group = _unpacked(folder)
                if folder.defect is not None:
                    if group.is_bulk():
                        # All articles of the archive are complete: the damage affects none of them.
                        yield from self._packages(
                            address.name, place, group, names, are_articles=folder.is_part
                        )
                        group = FileGroup({}, group.read)
                    yield self._damaged(address, place, folder, group, names)
                    continue
                if _is_envelope(folder, group):
                    continue
                # The remaining files may be several packages, none of them with an article.
                parts = (
                    {"": group}
                    if folder.path or not group.files
                    else group.by_folder(is_all=folder.is_only)
                )
                for inner, part in parts.items():
                    name = address.name
                    if not (folder.is_only or folder.is_part) or len(parts) > 1:
                        name += f"_{_last(inner or folder.path) or 'rest'}"
                    yield from self._packages(
                        name, place + inner, part, names, are_articles=folder.is_part
                    )

    @contextlib.contextmanager
    def _opened_archive(
        self, path: str
    ) -> Iterator[tuple[Any, Callable[[BinaryIO, int], archive_members.Members]]]:
        """Yield the stream of an archive, and the function that reads its members."""
        filesystem = self._tree.filesystem
        if _ZIP.search(path):
            with filesystem.open_input_file(path) as file:
                # zipfile reads a few bytes at a time: each would be a request to a bucket.
                yield io.BufferedReader(file, _ZIP_BUFFER_BYTES), archive_members.zip_members
        else:
            with filesystem.open_input_stream(path, compression=None) as stream:
                yield stream, archive_members.tar_members

    def _damaged(
        self,
        address: Address,
        place: str,
        folder: archives.ArchiveFolder,
        group: FileGroup,
        names: "_Names",
    ) -> Package:
        """Return the package that a damaged archive ends with, including its XML if present."""
        inner = next((name for name in sorted(group.files) if XML.search(name)), "")
        is_only = folder.is_only and not names.are_given
        name = address.name if is_only else f"{address.name}_rest"
        return Package(
            name=names.new(name, place),
            uri=names.new_uri(place + inner),
            xml=self._xml(group, inner)[0] if inner else None,
            defect=folder.defect,
            defect_detail=folder.detail,
        )

    def _packages(
        self,
        name: str,
        place: str,
        group: FileGroup,
        names: "_Names",
        *,
        are_articles: bool = False,
    ) -> Iterator[Package]:
        """Yield the article of a folder; more than one if several XML files are articles."""
        xml_names = group.xml()
        media = dict(group.files)
        for inner in xml_names:
            del media[inner]

        def read_media(inner: str) -> bytes:
            if inner not in media:
                raise FileNotFoundError(f"{inner} is not in the package")
            limit_mb = self._config.max_file_mb
            if media[inner] > limit_mb * 1_000_000:
                size_mb = media[inner] / 1e6
                raise OSError(f"file too large: {inner} has {size_mb:.0f} MB, over {limit_mb}")
            return group.read(inner, None)

        if not xml_names:
            there = [*sorted(media)[:5], *group.refused[:5]]
            yield Package(
                name=names.new(name, place),
                uri=names.new_uri(place),
                defect=NO_XML if there else EMPTY,
                defect_detail=", ".join(there)[:300] or None,
            )
            return
        # Supplements may be XML, too. If there is no article, or more than one, every XML file is
        # classified: it may be a damaged article.
        articles = [inner for inner in xml_names if group.is_article(inner)]
        if are_articles or len(articles) != 1:
            articles = xml_names
        for inner in articles:
            xml, defect, detail = self._xml(group, inner)
            own = (
                name if len(articles) == 1 and not are_articles else f"{name}_{XML.sub('', inner)}"
            )
            yield Package(
                name=names.new(own, place + inner),
                uri=names.new_uri(place + inner),
                xml=xml,
                files=media,
                read=read_media,
                defect=defect,
                defect_detail=detail,
            )

    def _xml(self, group: FileGroup, name: str) -> tuple[bytes | None, str | None, str | None]:
        """Return the bytes of an XML file, or the defect and its detail."""
        if group.files[name] > self._config.max_xml_mb * 1_000_000:
            return None, XML_TOO_LARGE, f"{group.files[name]} bytes"
        try:
            return group.read(name, None), None, None
        except OSError as error:
            return None, UNREADABLE, str(error)[:300]


def _group(
    tree: Tree, path: str, files: Mapping[str, int], refused: Sequence[str] = ()
) -> FileGroup:
    """Return files of a folder, by their names relative to it."""
    return FileGroup(
        files, lambda name, size_bytes: tree.read(f"{path}/{name}", size_bytes), refused
    )


def _is_package(folder: archives.ArchiveFolder) -> bool:
    """Return whether a folder of an archive is a package, and not its supplements."""
    group = _unpacked(folder)
    return bool(group.xml()) and ("/" not in folder.path or group.has_article())


def _is_envelope(folder: archives.ArchiveFolder, group: FileGroup) -> bool:
    """Return whether files are those that MECA puts next to the folder of the article."""
    is_root = not folder.path and not folder.is_only
    return is_root and "manifest.xml" in group.files and not group.has_article()


def _is_bulk(folder: archives.ArchiveFolder) -> bool:
    """Return whether a folder of an archive holds many articles and nothing else so far."""
    return len(folder.files) >= _MANY and all(map(XML.search, folder.files))


def _unpacked(folder: archives.ArchiveFolder) -> FileGroup:
    places = {printable(name): place for name, place in folder.files.items()}

    def read(name: str, size_bytes: int | None) -> bytes:
        with open(places[name], "rb") as stream:
            return stream.read(size_bytes)

    return FileGroup({name: place.stat().st_size for name, place in places.items()}, read)


class _Names:
    """Generates unique names of letters, digits, ``_`` and ``-`` only.

    No name is another one followed by ``_``: the contents of archive ``a`` are named ``a_…``.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._starts: set[str] = set()
        self._uris: Counter[str] = Counter()

    @property
    def are_given(self) -> bool:
        """Whether any name was generated so far."""
        return bool(self._taken)

    def new(self, wanted: str, place: str) -> str:
        """Return a unique name; a duplicate gets a hash of its location."""
        name = _NOT_IN_NAME.sub("-", wanted).strip("-")[:_NAME_LENGTH] or "package"
        parts = name.split("_")
        starts = {"_".join(parts[:count]) for count in range(1, len(parts))}
        is_free = name not in self._taken | self._starts and self._taken.isdisjoint(starts)
        while not is_free:
            place = hashlib.sha256(place.encode()).hexdigest()[:12]
            is_free = f"{name}-{place}" not in self._taken
            name = f"{name}-{place}" if is_free else name
        self._taken.add(name)
        self._starts |= starts
        return name

    def new_uri(self, uri: str) -> str:
        """Return a unique URI; an archive may hold the same name twice."""
        self._uris[uri] += 1
        return uri if self._uris[uri] == 1 else f"{uri} ({self._uris[uri]})"


def _walk(tree: Tree) -> Iterator[str]:
    """Yield the packages below a folder: folders end in a slash, archives and XML files do not."""
    # Iterative, not recursive: folders may be nested a thousand deep.
    todo = [tree.path + "/"]
    while todo:
        item = todo.pop()
        if not item.endswith("/"):
            yield item
            continue
        path = item.rstrip("/")
        is_root = path == tree.path
        if tree.is_link(path) and tree.refusal(path) is not None:
            yield item
            continue
        try:
            found = tree.folder(path)
            _refuse_published(tree, path, found)
            inside = _packages_in(tree, path, found, is_root=is_root)
        except OSError:
            # An unavailable bucket is not a defect of a package.
            if is_root or not tree.is_local:
                raise
            yield item
            continue
        if inside is not None:
            todo += [f"{path}/{name}" for name in sorted(inside, reverse=True)]
        # An empty source is a user error and not a package.
        elif not is_root or found.files:
            yield item


def _refuse_published(tree: Tree, path: str, found: Listing) -> None:
    """Reject a folder that biovl published: its parts and shards are not packages.

    Raises:
        SourceError: If it is one.
    """
    size_bytes = found.files.get(MANIFEST, 0)
    if not 0 < size_bytes <= _MOST_MANIFEST_BYTES:
        return
    try:
        manifest = json.loads(tree.read(f"{path}/{MANIFEST}", size_bytes))
    except (OSError, ValueError, RecursionError):
        # Not one of ours: a package may hold a file of this name.
        return
    if isinstance(manifest, dict) and str(manifest.get("code", "")).startswith("biovl "):
        raise SourceError(
            f"source.path: {tree.uri(path)} holds {manifest.get('kind')} that biovl published, and "
            "no packages: give a folder of packages alone"
        )


def _packages_in(tree: Tree, path: str, found: Listing, *, is_root: bool) -> list[str] | None:
    """Return the packages and folders to walk in a folder, or None if it is a package itself."""
    xml = [name for name in found.files if XML.search(name)]
    tars = [name for name in found.files if _ARCHIVE.search(name)]
    folders = [f"{name}/" for name in found.folders]
    # A rejected entry is reported as a package if it would have been one.
    refused = [name for name in found.refused if name.endswith("/") or _ARCHIVE.search(name)]
    if is_root:
        refused += [name for name in found.refused if XML.search(name)]
    everything = [*xml, *tars, *folders, *refused]
    # A zip next to one article is a supplement, as in packages of PMC.
    if not xml or (is_root and (len(xml) > 1 or not all(map(_ZIP.search, tars)))):
        return everything or None
    group = _group(tree, path, found.files)
    # A package may hold archives, and folders, of supplements.
    if tars and len(list(itertools.islice(filter(group.is_article, xml), 2))) > 1:
        return everything
    if any(_has_article(tree, path, name) for name in found.folders):
        return everything
    return None


def _has_article(tree: Tree, path: str, folder: str) -> bool:
    below = tree.below(f"{path}/{folder}").files
    group = _group(tree, f"{path}/{folder}", below)
    return any(group.is_article(name) for name in below if XML.search(name))


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _broken(address: Address, defect: str, detail: str) -> Package:
    return Package(name=address.name, uri=address.uri, defect=defect, defect_detail=detail)
