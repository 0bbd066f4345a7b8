"""A Python function that returns the findings of one text, by default our rules."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from biovl.benchmark.chexpert_findings import FINDINGS, NO_FINDING, State
from biovl.benchmark.labellers import LabelledTexts
from biovl.core.errors import ConfigError

OURS = "biovl.benchmark.chexpert_findings:label"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the labeller: a function."""

    function: str = OURS
    """The function, as ``module:function``: from a text to the state of each finding mentioned."""


def build(config: Config) -> "FunctionLabeller":
    """Return the labeller.

    Raises:
        ConfigError: If the function does not exist.
    """
    module, _, name = config.function.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"there is no labeller {config.function!r} (module:function): {error}"
        ) from error
    return FunctionLabeller(function, (*FINDINGS, NO_FINDING) if config.function == OURS else None)


@dataclass(frozen=True)
class FunctionLabeller:
    """A function as labeller."""

    function: Callable[[str], Mapping[str, State]]
    findings: tuple[str, ...] | None

    def load(self, device: str) -> Callable[[Sequence[str]], LabelledTexts]:
        """Return a function that labels a list of texts; it always runs on the CPU."""
        return lambda texts: LabelledTexts(states=[dict(self.function(text)) for text in texts])
