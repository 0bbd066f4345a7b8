"""Local store of downloaded objects by MD5, so that none is downloaded twice."""

import hashlib
from collections.abc import Callable
from typing import BinaryIO

from biovl.core.folders import Folder
from biovl.harvest.pmc.client import BucketClient


class Store:
    """Downloaded objects in a folder: the user's cache, or a folder of the draft."""

    def __init__(self, folder: Folder, under: str, *, is_kept: bool) -> None:
        self._folder, self._under, self._is_kept = folder, under, is_kept
        self._verified: set[str] = set()

    def fetch(self, service: BucketClient, key: str, md5: str, *, max_bytes: int) -> None:
        """Download an object unless it is stored already; verify its MD5.

        Raises:
            FileError: If it is unavailable.
            StorageError: If the service, a disk or a bucket fails.
        """
        if self._read(md5) is None:
            with self._folder.writer(self._name(md5)) as stream:
                service.download(key, stream, max_bytes=max_bytes, md5=md5)
            self._verified.add(md5)

    def read(self, service: BucketClient, key: str, md5: str, *, max_bytes: int) -> bytes:
        """Return the content of an object from the store; download it if necessary."""
        found = self._read(md5)
        if found is None:
            self.fetch(service, key, md5, max_bytes=max_bytes)
            found = self._folder.read(self._name(md5))
        return found

    def fetch_unchecked(
        self, name: str, fetch: Callable[[], bytes], is_whole: Callable[[bytes], bool]
    ) -> bytes:
        """Return an object that has no checksum, from the store or else by fetching it.

        Args:
            name: Name whose MD5 is the key in the store.
            fetch: Downloads the object.
            is_whole: Returns whether a stored object is complete; if not, it is fetched again.
        """
        mark = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
        if self._folder.exists(self._name(mark)):
            data = self._folder.read(self._name(mark))
            if is_whole(data):
                return data
        data = fetch()
        self._folder.write(self._name(mark), data)
        return data

    def open(self, md5: str) -> BinaryIO:
        """Return a stored object as a stream."""
        stream: BinaryIO = self._folder.filesystem.open_input_file(self._folder.at(self._name(md5)))
        return stream

    def drop(self) -> None:
        """Delete the stored objects, unless this is the user's cache."""
        if not self._is_kept:
            self._folder.delete_folder(self._under)

    def _read(self, md5: str) -> bytes | None:
        """Return an object, None if it is missing or corrupt."""
        name = self._name(md5)
        if not self._folder.exists(name):
            return None
        data = self._folder.read(name)
        if md5 in self._verified:
            return data
        if hashlib.md5(data, usedforsecurity=False).hexdigest() != md5:
            return None
        self._verified.add(md5)
        return data

    def _name(self, md5: str) -> str:
        return f"{self._under}/{md5[:2]}/{md5}"
