"""Sections of the page: each file has ``TITLE`` and ``body(story)``, which may return None."""

from types import ModuleType

from biovl.chain.page.sections import (
    concepts,
    corpus,
    figures,
    index,
    journey,
    next_steps,
    panels,
    scores,
    searches,
    shown,
    training,
    warnings,
)

SECTIONS: tuple[ModuleType, ...] = (
    warnings,
    journey,
    figures,
    panels,
    corpus,
    training,
    scores,
    concepts,
    index,
    searches,
    shown,
    next_steps,
)
"""Sections in the order of the page."""
