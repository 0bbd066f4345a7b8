"""Prompts of the papers' zero-shot benchmarks, verbatim, read from ``prompts.yaml``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

import yaml

from biovl.core import config as configs

PLACE = "{}"
"""Placeholder of the class name. It is replaced literally: other braces are kept."""


@dataclass(frozen=True, kw_only=True)
class ClassPrompts:
    """Class names and prompt templates of a benchmark."""

    name: str
    """Name of the prompts in configurations."""
    title: str
    """Name of the benchmark in the paper."""
    spellings: Mapping[str, tuple[str, ...]]
    """Other spellings in published data, by class name; class names are in the paper's order."""
    templates: tuple[str, ...]
    """Prompt templates, each with exactly one ``{}``."""
    source: str
    """Table or section of the paper."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, in the order of the paper."""
        return tuple(self.spellings)


def fill_template(template: str, class_name: str) -> str:
    """Return a template with the class name inserted.

    Raises:
        ValueError: If the template does not contain exactly one ``{}``.
    """
    if template.count(PLACE) != 1:
        raise ValueError(f"a template holds exactly one {PLACE}, got {template!r}")
    return template.replace(PLACE, class_name)


_FILE = yaml.safe_load(files(__package__).joinpath("prompts.yaml").read_bytes())

TEMPLATES = ("this is an image of {}", "{} presented in image")
"""Templates of BiomedCLIP (supplementary table 10, PCam and lungs of LC25000), for classes with no
templates of their own."""

PROMPTS: Mapping[str, ClassPrompts] = {
    name: configs.build(ClassPrompts, {"name": name, **item}, name=name)
    for name, item in _FILE["prompts"].items()
}


def spellings_of(words: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return other spellings of class names, if they are those of a known benchmark."""
    names = list(words)
    for known in PROMPTS.values():
        if set(names) == set(known.classes):
            return known.spellings
    return dict.fromkeys(names, ())
