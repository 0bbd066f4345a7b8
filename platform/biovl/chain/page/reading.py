"""What there is to tell: published folders, and the notes beside them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from biovl.core.artifacts import Folder, Manifest, find_manifest


@dataclass(frozen=True)
class Chapter:
    """A step that has published."""

    step: str
    uri: str
    manifest: Manifest
    seconds: float | None = None
    """What it took, in all its runs that came to an end; None if nobody noted it."""


@dataclass(frozen=True)
class Notes:
    """What published folders do not say; kept in ``story.json``."""

    recipe: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By step."""
    searches: tuple[Mapping[str, Any], ...] = ()
    """What a service was asked: ``asked`` in words, ``text`` or ``figure_id`` of the query,
    ``matching`` figures, ``took_ms``, and ``results`` with ``figure_id`` and ``score``."""
    screenshot: str = ""
    """The page of the service as a browser showed it: a file in the folder."""


@dataclass(frozen=True)
class Story:
    """All that a page tells."""

    folder: str
    chapters: tuple[Chapter, ...]
    notes: Notes = Notes()

    def of(self, kind: str) -> Chapter | None:
        """Return the chapter whose folder is of a kind (``corpus``), if there is one."""
        return next((item for item in self.chapters if item.manifest.kind == kind), None)


def read_story(folder: str, published: Mapping[str, str], notes: Notes) -> Story:
    """Return the story of the folders that are published.

    Args:
        folder: Of the chain.
        published: By step, in their order, the folder it publishes.
        notes: What these do not say.
    """
    chapters = []
    for step, uri in published.items():
        manifest = find_manifest(uri)
        if manifest is not None:
            chapters.append(Chapter(step, uri, manifest, notes.seconds.get(step)))
    return Story(folder, tuple(chapters), notes)


def read_notes(folder: str, name: str) -> Notes:
    """Return what was noted in a folder, nothing if nothing was."""
    if not Folder(folder).exists(name):
        return Notes()
    values = json.loads(Folder(folder).read(name))
    return Notes(**{**values, "searches": tuple(values.get("searches", ()))})
