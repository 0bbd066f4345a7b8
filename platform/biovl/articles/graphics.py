"""Candidate files of a package for the image of a graphic, as publishers' file names vary."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from biovl.articles.content import FigureContent

# Formats in which a figure may be published; other files are not images of a figure.
_SUFFIXES = (
    "jpg jpeg jpe jfif png tif tiff gif webp bmp jp2 j2k jpf jpx jpc jxr wdp hdp jxl avif heic "
    "heif svg svgz eps ps ai cdr pdf emf emz wmf wmz pict pct psd ppt pptx dcm dicom fits djvu "
    "mp4 mov avi mpg mpeg wmv flv webm m4v"
).split()
_SUFFIX = re.compile(rf"\.(?:{'|'.join(_SUFFIXES)})$", re.IGNORECASE)
_BOUNDARY = "._-"
# What follows a figure's name in that of its supplement, not of its image: fig2-figsupp1.
_SUPPLEMENT = re.compile(r"[._-](?:fig)?(?:supp|sm\d*(?:[._-]|$)|s\d+(?:[._-]|$))")
_LONGEST_SUFFIX = 8


class FileLookup:
    """Lookup of a package's files by the names in its XML.

    Args:
        names: Files of the package, with their folders.
        figures: Figures of the article. A file that one of them names by its exact path is a
            candidate for another only if nothing else matches.
    """

    def __init__(self, names: Iterable[str], figures: Iterable[FigureContent] = ()) -> None:
        self._by_path = {name: name for name in names}
        self._by_name: dict[str, list[str]] = defaultdict(list)
        self._by_stem: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self._by_path):
            base = name.rpartition("/")[2].lower()
            self._by_name[base].append(name)
            if _SUFFIX.search(base):
                self._by_stem[_SUFFIX.sub("", base)].append(name)
        hrefs = {h for figure in figures for graphic in figure.graphics for h in graphic.hrefs}
        self._exact = hrefs & self._by_path.keys()
        self._claimed = {name for href in hrefs for name in self._named(href)}

    def candidates(self, hrefs: Sequence[str]) -> list[str]:
        """Return the files that may be the image of a graphic, without duplicates.

        All hrefs of a graphic are used, as its alternatives are the same image. A file matches by
        its exact path, its name in any case, its name without an image suffix (a TIFF, a JPEG and a
        thumbnail may share one), or, only if exactly one name matches, by an href that is longer or
        shorter than the name by a part delimited by ``.``, ``_`` or ``-``:
        ``info:doi/10.1371/journal.pone.0038869.g001`` is ``pone.0038869.g001.tif``. If nothing
        matches, a file with that name and any suffix is used.

        If an href is the exact path of a file, other files match only in the same folder:
        ``fig1.tif``, not ``supplement/fig1.jpg``. A file that another figure names by its exact
        path is returned only if nothing else matches. Files that another figure names are never
        matched by a longer or shorter name.
        """
        named = dict.fromkeys(name for href in hrefs for name in self._named(href))
        if named:
            folders = {_folder(name) for name in named if name in hrefs}
            beside = [name for name in named if not folders or _folder(name) in folders]
            own = [name for name in beside if name in hrefs or name not in self._exact]
            return own or list(named)
        for look in (self._similar, self._of_any_kind):
            found = dict.fromkeys(name for href in hrefs for name in look(href))
            if found:
                return [name for name in found if name not in self._claimed]
        return []

    def _named(self, href: str) -> list[str]:
        base = href.rpartition("/")[2].lower()
        stem = _SUFFIX.sub("", base)
        exact = [self._by_path[href]] if href in self._by_path else []
        # An href with a suffix names a file, but the original may be in the same folder.
        return exact + self._by_name.get(base, []) + self._by_stem.get(stem, [])

    def _similar(self, href: str) -> list[str]:
        wanted = _SUFFIX.sub("", href.rpartition("/")[2].lower())
        if len(wanted) < 2:
            return []
        longer = [
            stem
            for stem in self._by_stem
            if _continues(stem, wanted) and not _SUPPLEMENT.match(stem, len(wanted))
        ]
        shorter = [stem for stem in self._by_stem if _ends(wanted, stem)]
        for stems in (shorter, longer):
            if len(stems) == 1:
                return self._by_stem[stems[0]]
        return []

    def _of_any_kind(self, href: str) -> list[str]:
        stem = _SUFFIX.sub("", href.rpartition("/")[2].lower())
        return [
            name
            for base, names in self._by_name.items()
            if base.rpartition(".")[0] == stem and len(base) - len(stem) <= _LONGEST_SUFFIX
            for name in names
        ]


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _continues(name: str, start: str) -> bool:
    return name.startswith(start) and name[len(start) : len(start) + 1] in tuple(_BOUNDARY)


def _ends(name: str, end: str) -> bool:
    return len(end) >= 4 and name.endswith(end) and name[: -len(end)][-1:] in tuple(_BOUNDARY)
