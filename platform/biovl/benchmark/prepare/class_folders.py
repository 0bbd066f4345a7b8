"""Images in class folders: the class of an image is the innermost folder with a class's name."""

import functools
import posixpath
from collections.abc import Mapping, Sequence

from biovl.benchmark.class_names import normalize
from biovl.benchmark.prepare.raw_files import RawFiles


def classes_of(
    raw: RawFiles, folders: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], list[str]]:
    """Return the class of each image, and the images without one, in the order of the names.

    Args:
        raw: The raw files.
        folders: Names of the folders by class, compared without case and separators.

    Raises:
        SourceError: If a class has no images.
    """
    class_of_folder = {
        normalize(folder): name for name, spellings in folders.items() for folder in spellings
    }

    @functools.cache
    def class_of(folder: str) -> str | None:
        parts = reversed(folder.split("/"))
        return next(
            (class_of_folder[normalize(p)] for p in parts if normalize(p) in class_of_folder), None
        )

    found, others = dict[str, str](), list[str]()
    for name in raw.images():
        one = class_of(posixpath.dirname(name))
        if one is None:
            others.append(name)
        else:
            found[name] = one
    for name, spellings in folders.items():
        if name not in found.values():
            raise raw.missing(f"a folder {' or '.join(spellings)} with images")
    return found, others
