"""The parts of the page, a file each: ``TITLE``, and ``body(story)``, None if there is nothing."""

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
)

SECTIONS: tuple[ModuleType, ...] = (
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
"""In the order in which they are told."""
