"""Labellers: extract findings from reports and captions. Each file is a plug-in.

``function`` calls a Python function, by default the rules of ``chexpert_findings``; ``classifier``
is a text classifier of transformers; ``chexbert`` is a checkpoint of CheXbert. Findings are matched
by name, never by position.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from biovl.benchmark import class_names
from biovl.benchmark.chexpert_findings import State
from biovl.core import plugins
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin

KIND = "benchmark.labellers"


@dataclass(frozen=True, kw_only=True)
class LabelledTexts:
    """Findings of some texts."""

    states: list[dict[str, State]]
    """State of each finding that a text mentions, by its name; one mapping per text."""
    truncated: int = 0
    """Number of texts that exceed the context length of the labeller, whose ends it did not
    read."""


class Labeller(Protocol):
    """A labeller that is not loaded yet: cheap to make and to pickle."""

    @property
    def findings(self) -> tuple[str, ...] | None:
        """Names of the findings supported; None if unknown. May read the labeller's settings."""
        ...

    def load(self, device: str) -> Callable[[Sequence[str]], LabelledTexts]:
        """Load the labeller on a device, and return a function that labels texts."""
        ...


def make(labeller: str | Plugin) -> Labeller:
    """Return a labeller by its plug-in and settings, or by ``module:function``.

    Raises:
        ConfigError: If there is no such labeller.
    """
    if isinstance(labeller, str):
        labeller = Plugin("function", {"function": labeller})
    made: Labeller = plugins.make(KIND, labeller)
    return made


def check_findings(findings: Sequence[str], labeller: Labeller) -> None:
    """Reject findings that a labeller does not know.

    Raises:
        ConfigError: If one is unknown, or two are the same; the message has both lists.
    """
    asked = [class_names.normalize(name) for name in findings]
    twice = sorted({name for name in findings if asked.count(class_names.normalize(name)) > 1})
    if twice:
        raise ConfigError(f"findings: {twice} are the same finding")
    known = labeller.findings
    if known is None:
        return
    spelled = [class_names.normalize(name) for name in known]
    unknown = [name for name in findings if class_names.normalize(name) not in spelled]
    if unknown:
        raise ConfigError(
            f"findings: {unknown} are unknown to the labeller; compared are {list(findings)}, the "
            f"labeller has {list(known)}. Set findings to some of these, or name the labels of a "
            'classifier: "names": {"LABEL": "FINDING"}'
        )
    repeated = [name for name in known if spelled.count(class_names.normalize(name)) > 1]
    if repeated:
        raise ConfigError(f"the labeller has several labels of one name: {repeated}")


def positive(states: Mapping[str, State], findings: Sequence[str]) -> list[bool]:
    """Return whether each finding is positive; uncertain and unmentioned findings are negative."""
    by_name = {class_names.normalize(name): state for name, state in states.items()}
    return [by_name.get(class_names.normalize(name)) == "positive" for name in findings]
