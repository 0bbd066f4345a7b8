"""Locate the corpus of an index: the folder that full images are read from.

The manifest contains the path of the corpus as given when the index was built. A relative path is
resolved first against the folder of the index, and last against the working directory.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from biovl.core.artifacts import MANIFEST, Input, fingerprint
from biovl.core.errors import BiovlError
from biovl.core.folders import Folder

NOTE = "corpus_from_index"
"""Key in the notes of an index's manifest: the corpus, relative to the folder of the index."""


def path_from_index(corpus: str, index: str) -> str | None:
    """Return a relative corpus path as seen from the folder of the index, for its manifest.

    None if the path is absolute, or the index is in a bucket.
    """
    if not _is_relative(corpus) or "://" in index:
        return None
    start = os.path.abspath(os.path.expanduser(index))
    return Path(os.path.relpath(os.path.abspath(corpus), start)).as_posix()


def find_corpus(
    index: str, recorded: Input, *, noted: str | None = None, override: str | None = None
) -> str:
    """Return the location of the corpus of an index.

    Of several candidates, a corpus with the recorded fingerprint is preferred, then the first that
    exists. If none exists, the first is returned, and reading from it fails.

    Args:
        index: Folder of the index.
        recorded: The input ``corpus`` of its manifest.
        noted: The note ``NOTE`` of its manifest.
        override: Location that replaces the recorded one.
    """
    candidates = list(dict.fromkeys(_candidates(index, recorded.uri, noted, override)))
    if len(candidates) == 1:
        return candidates[0]
    existing = []
    for candidate in candidates:
        published = _fingerprint(candidate)
        if published == recorded.fingerprint:
            return candidate
        if published is not None or os.path.isdir(os.path.expanduser(candidate)):
            existing.append(candidate)
    return (existing or candidates)[0]


def _candidates(
    index: str, recorded: str, noted: str | None, override: str | None
) -> Iterator[str]:
    if override is not None:
        yield override.rstrip("/")
    if not _is_relative(recorded):
        yield recorded.rstrip("/")
        return
    if "://" not in index:
        folder = os.path.abspath(os.path.expanduser(index))
        # The folder may be a symbolic link to a version of the index.
        folders = dict.fromkeys((folder, os.path.realpath(folder)))
        if noted is not None:
            for one in folders:
                yield os.path.normpath(os.path.join(one, noted))
        # Built before the note existed: the working directory was probably a parent of the index.
        for one in folders:
            for parent in Path(one).parents:
                yield os.path.normpath(parent / recorded)
    yield os.path.abspath(recorded)


def _is_relative(uri: str) -> bool:
    return "://" not in uri and not os.path.isabs(os.path.expanduser(uri))


def _fingerprint(uri: str) -> str | None:
    """Return the fingerprint of a published folder; None if nothing is published there."""
    try:
        return fingerprint(uri) if Folder(uri).exists(MANIFEST) else None
    except (BiovlError, OSError):
        return None
