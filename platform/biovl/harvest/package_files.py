"""Files of one folder of packages, and which of its XML files are articles."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

XML = re.compile(r"\.n?xml$", re.IGNORECASE)
"""Ending of the names of XML files."""

_HEAD_BYTES = 65_536
_ROOT = re.compile(
    rb"\A(?:\xef\xbb\xbf)?"
    rb"(?>\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*+(?:\[.*?\]\s*+)?>)*+"
    rb"<(?:[\w.-]+:)?([\w.-]+)[\s>/]",
    re.DOTALL | re.IGNORECASE,
)
_ARTICLE_ROOTS = (
    b"article pmc-articleset pmc-articles articles records record oai-pmh getrecord listrecords"
).split()


@dataclass(frozen=True)
class FileGroup:
    """Files of one folder, in an archive or on a file system."""

    files: Mapping[str, int]
    """Name relative to their folder -> size in bytes."""
    read: Callable[[str, int | None], bytes]
    """Return a file, or only its first bytes."""
    refused: Sequence[str] = ()
    """Entries that were not read, and why."""

    def xml(self) -> list[str]:
        """Return the sorted names of the XML files that are in no subfolder."""
        return sorted(name for name in self.files if "/" not in name and XML.search(name))

    def is_bulk(self) -> bool:
        """Return whether there are many articles and no other files."""
        xml = self.xml()
        return len(xml) == len(self.files) and sum(map(self.is_article, xml)) > 1

    def has_article(self) -> bool:
        """Return whether any XML file may be an article."""
        return any(self.is_article(name) for name in self.xml())

    def is_article(self, name: str) -> bool:
        """Return whether an XML file may be an article: it is not clearly something else."""
        try:
            head = self.read(name, _HEAD_BYTES)
        except OSError:
            return True
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            head = head.decode("utf-16", "ignore").encode()
        root = _ROOT.search(head)
        return root is None or root[1].lower() in _ARTICLE_ROOTS

    def by_folder(self, *, is_all: bool) -> dict[str, "FileGroup"]:
        """Return the files of each outermost folder that has files: ``{"PMC1/": …, "": …}``.

        Lists and notes next to packages are left out, unless these files are all there is.
        """
        folders: list[str] = []
        parts: dict[str, dict[str, int]] = {}
        for name in sorted(self.files, key=lambda name: name.rpartition("/")):
            folder = "".join(name.rpartition("/")[:2])
            if folder and not (folders and folder.startswith(folders[-1])):
                folders.append(folder)
            own = folders[-1] if folder else ""
            parts.setdefault(own, {})[name.removeprefix(own)] = self.files[name]
        if not self.xml() and not (is_all and len(parts) < 2):
            parts.pop("", None)
        return {own: self._part(own, files) for own, files in parts.items()}

    def _part(self, own: str, files: Mapping[str, int]) -> "FileGroup":
        return FileGroup(files, lambda name, size_bytes: self.read(own + name, size_bytes))
