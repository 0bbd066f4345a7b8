"""Input of the page: published folders, and the notes stored next to them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from biovl.core.artifacts import Manifest, find_manifest
from biovl.core.folders import Folder


@dataclass(frozen=True)
class Chapter:
    """A published step, with its manifest and duration."""

    step: str
    uri: str
    manifest: Manifest
    seconds: float | None = None
    """Duration of the step over all attempts; None if unknown."""


@dataclass(frozen=True)
class Notes:
    """Information that published folders do not contain; stored in ``story.json``."""

    recipe: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Duration of each step in seconds, over all attempts."""
    interrupted: Mapping[str, float] = field(default_factory=dict)
    """Duration of the attempts of each step that is not published yet, in seconds."""
    remaining: Sequence[str] = ()
    """Steps of the chain that are not published yet, in order."""
    searches: tuple[Mapping[str, Any], ...] = ()
    """Searches sent to a service: ``asked`` (description), ``text`` or ``figure_id`` of the query,
    ``matching`` figures, ``took_ms``, and ``results`` with ``figure_id`` and ``score``."""
    screenshot: str = ""
    """File name of a screenshot of the search page, in the folder of the chain."""
    labels: str = ""
    """Sentence about the share of correct labels, where it is known."""


@dataclass(frozen=True)
class Story:
    """Data of the page: the published steps and the notes."""

    folder: str
    chapters: tuple[Chapter, ...]
    notes: Notes = Notes()

    def of(self, kind: str) -> Chapter | None:
        """Return the step whose folder is of a kind, such as ``corpus``; None if there is none."""
        return next((item for item in self.chapters if item.manifest.kind == kind), None)


def read_story(folder: str, published: Mapping[str, str], notes: Notes) -> Story:
    """Return the data of the steps that are published.

    Args:
        folder: Folder of the chain.
        published: Output folder by step, in order.
        notes: Information that the folders do not contain.
    """
    chapters = []
    for step, uri in published.items():
        manifest = find_manifest(uri)
        if manifest is not None:
            chapters.append(Chapter(step, uri, manifest, notes.seconds.get(step)))
    return Story(folder, tuple(chapters), notes)


def read_notes(folder: str, name: str) -> Notes:
    """Return the notes of a folder; empty notes if the file does not exist."""
    if not Folder(folder).exists(name):
        return Notes()
    values = json.loads(Folder(folder).read(name))
    return Notes(**{**values, "searches": tuple(values.get("searches", ()))})
