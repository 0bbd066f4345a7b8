"""The prompts of the papers' zero-shot benchmarks, read from ``prompts.yaml``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

import yaml

from biovl.core import config as configs

PLACE = "{}"
"""Where the name of the class goes. It is no format string: other braces mean themselves."""


@dataclass(frozen=True, kw_only=True)
class ClassPrompts:
    """How a benchmark's classes are put into words."""

    name: str
    title: str
    spellings: Mapping[str, tuple[str, ...]]
    """Of each class, in the paper's order: how data spells it otherwise."""
    templates: tuple[str, ...]
    """Each holds exactly one ``{}``."""
    source: str

    @property
    def classes(self) -> tuple[str, ...]:
        """The words for the classes."""
        return tuple(self.spellings)


def filled(template: str, class_name: str) -> str:
    """Return the prompt of a class: ``a photo of {}`` and ``pneumonia`` give the sentence.

    Raises:
        ValueError: If the template does not hold exactly one ``{}``.
    """
    if template.count(PLACE) != 1:
        raise ValueError(f"a template holds exactly one {PLACE}, got {template!r}")
    return template.replace(PLACE, class_name)


_FILE = yaml.safe_load(files(__package__).joinpath("prompts.yaml").read_bytes())

PROMPTS: Mapping[str, ClassPrompts] = {
    name: configs.build(ClassPrompts, {"name": name, **item}, name=name)
    for name, item in _FILE["prompts"].items()
}


def spellings_of(words: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return other spellings of each word for a class, if the words are those of a benchmark."""
    given = list(words)
    for known in PROMPTS.values():
        if set(given) == set(known.classes):
            return known.spellings
    return dict.fromkeys(given, ())
