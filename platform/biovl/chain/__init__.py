"""A chain of jobs: which step reads what another has published, and whether that is done.

A chain adds nothing to its steps: each is an ordinary job with its own recipe and settings, and the
folder it publishes is all that is passed on. So a step that is published is not done again, and a
killed chain goes on.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest, find_manifest
from biovl.core.config import Recipe
from biovl.core.errors import ArtifactError, BiovlError, ConfigError

SHORT = {"source": "harvest.source"}
"""What may be said shorter: ``--set source.path=…``."""

State = Literal["published", "begun", "to do", "differs", "unchecked"]
"""Differs: something else is published there. Unchecked: what is published there is compared with
what it reads, which is not there."""


@dataclass(frozen=True)
class FirstOf:
    """Of several steps the first that the chain does."""

    steps: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A job as a part of a chain."""

    name: str
    folder: str
    """What it publishes, below the folder of the chain."""
    config: type[Any]
    recipes: Mapping[str, Recipe[Any]]
    job: Callable[[Any], Manifest]
    """Publishes ``config.out``; says at once what is published there, if it is the same."""
    check: Callable[[Any, Mapping[str, Any]], None] = lambda config, made: None
    """Raises what is known to stop the job before any step begins. Given the configurations of the
    steps before it that are still to publish, by the folder they will publish."""
    reads: Mapping[str, str | FirstOf | tuple[str, ...]] = field(default_factory=dict)
    """By setting, the step whose folder it names. For a setting that takes several folders a tuple
    of steps; those that the chain leaves out are left out of it."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The steps that it may read from."""
        return tuple(itertools.chain.from_iterable(map(_names, self.reads.values())))


@dataclass(frozen=True)
class Chain:
    """What a chain is to do."""

    folder: str
    """Local or ``s3://``; every step publishes below it."""
    settings: Mapping[str, Mapping[str, Any]]
    """By step that is done, its settings by name, and its recipe as ``recipe``."""
    name: str = ""
    """Where settings differ from what is published, the new folders are called so as well."""
    recipe: str = ""


@dataclass(frozen=True)
class Link:
    """A step of a chain with its configuration."""

    step: Step
    config: Any
    state: State
    reason: str = ""
    """Why what is published there is not what is asked for."""
    manifest: Manifest | None = None
    """If what is asked for is published."""

    @property
    def out(self) -> str:
        """The folder that the step publishes."""
        return str(self.config.out)


class StepFailed(BiovlError):
    """A step could not do what it was asked for; the message begins with its name."""


def read_chain(steps: Sequence[Step], recipe: str, values: Mapping[str, Any]) -> Chain:
    """Return what values by dotted name ask for.

    Args:
        steps: That there are.
        recipe: What the values began as.
        values: ``folder``, ``name``, ``source.…``, and settings by step: ``pretrain.epochs``. A
            step is done if it has a ``recipe``; None leaves it out.

    Raises:
        ConfigError: If a name is neither, or the folder is missing.
    """
    settings: dict[str, dict[str, Any]] = {step.name: {} for step in steps}
    own: dict[str, Any] = {}
    for given, value in values.items():
        head, dot, rest = given.partition(".")
        name = f"{SHORT[head]}{dot}{rest}" if head in SHORT else given
        head, _, rest = name.partition(".")
        if head in ("folder", "name") and not rest:
            own[head] = str(value)
        elif head in settings and rest:
            # The last word counts, and is the last to be said.
            settings[head].pop(rest, None)
            settings[head][rest] = value
        else:
            steps_named = ", ".join(f"{step.name}.…" for step in steps)
            meant = configs.nearest(head, ["folder", "name", *SHORT, *settings])
            raise ConfigError(
                f"there is nothing called {given!r} to set; choose from folder, name, "
                f"{', '.join(f'{short}.…' for short in SHORT)}, {steps_named}{meant}"
            )
    if not own.get("folder"):
        raise ConfigError("folder is required: --set folder=DIR, or s3://…")
    if "/" in own.get("name", ""):
        raise ConfigError(f"name is a part of the name of a folder, got {own['name']!r}")
    asked = {name: given for name, given in settings.items() if given.get("recipe") is not None}
    if not asked:
        raise ConfigError("no step is asked for: --set STEP.recipe=NAME adds one")
    return Chain(own["folder"].rstrip("/"), asked, own.get("name", ""), recipe)


def links(steps: Sequence[Step], chain: Chain) -> list[Link]:
    """Return the steps of a chain in their order, as they are now; nothing is done.

    Raises:
        ConfigError: If a setting is not valid; every step is checked.
    """
    found: list[Link] = []
    for step in steps:
        if step.name in chain.settings:
            found.append(link(step, chain, found))
    return found


def link(step: Step, chain: Chain, before: Sequence[Link]) -> Link:
    """Return a step with its configuration, and whether it is done.

    Args:
        step: Of the chain.
        chain: What is to be done.
        before: The steps before it.

    Raises:
        ConfigError: If a setting is not valid, or a folder is read that no step publishes.
    """
    plain = _configured(step, chain, before)
    waits = any(o.step.name in step.sources and o.state != "published" for o in before)
    found = _as_it_is(step, plain, waits=waits)
    if not chain.name or found.state == "published":
        return found
    beside = dataclasses.replace(plain, out=f"{plain.out}-{chain.name}")
    return _as_it_is(step, beside, waits=waits)


def check(found: Sequence[Link]) -> None:
    """Refuse a chain one of whose steps is known to fail, before anything is done.

    Raises:
        StepFailed: With the first such step and its reason.
    """
    made: dict[str, Any] = {}
    for each in found:
        if each.state == "published":
            continue
        try:
            each.step.check(each.config, made)
        except BiovlError as error:
            raise StepFailed(f"Nothing was started.\n{each.step.name} failed: {error}") from error
        made[each.out] = each.config


def refuse_unused(given: Sequence[str], chain: Chain, steps: Sequence[Step]) -> None:
    """Refuse settings that a person gave to steps that the chain leaves out.

    Raises:
        ConfigError: With the first such setting.
    """
    for name in given:
        head, _, rest = name.partition(".")
        left_out = {step.name for step in steps} - set(chain.settings)
        if head in left_out and rest != "recipe":
            raise ConfigError(
                f"{name} is set, but this chain leaves {head} out: --set {head}.recipe=NAME adds it"
            )


def refusal(found: Link, steps: Sequence[Step], chain: Chain) -> str:
    """Return why a step cannot publish, and what can be done without losing anything unasked."""
    stale = {found.step.name}
    folders = [found.out]
    for step in steps:
        if step.name not in chain.settings or not stale & set(step.sources):
            continue
        stale.add(step.name)
        suffix = f"-{chain.name}" if chain.name else ""
        out = f"{chain.folder}/{step.folder}{suffix}"
        if find_manifest(out) is not None:
            folders.append(out)
    remove = "aws s3 rm --recursive" if "://" in found.out else "rm -r"
    return "\n".join(
        [
            found.reason,
            "Nothing is overwritten. Keep both, and give what comes of the new settings a name:",
            f"  --set name=NAME      publishes {found.step.folder}-NAME, and what follows from it",
            "or remove what shall be made anew, and type the same command again:",
            *(f"  {remove} {folder}" for folder in folders),
        ]
    )


def _configured(step: Step, chain: Chain, before: Sequence[Link]) -> Any:
    given = dict(chain.settings[step.name])
    recipe = given.pop("recipe")
    if recipe not in step.recipes:
        raise ConfigError(
            f"{step.name} has no recipe {recipe!r}; choose from {', '.join(sorted(step.recipes))}"
            f"{configs.nearest(str(recipe), step.recipes)}"
        )
    published = {other.step.name: other.out for other in before}
    wired: dict[str, Any] = {"out": f"{chain.folder}/{step.folder}"}
    for setting, source in step.reads.items():
        if setting in given:
            continue
        found = [published[name] for name in _names(source) if name in published]
        if isinstance(source, tuple):
            wired[setting] = found
        elif found:
            wired[setting] = found[0]
        else:
            raise ConfigError(
                f"{step.name} reads what {' or '.join(_names(source))} publishes, which this chain "
                f"leaves out: --set {step.name}.{setting}=DIR"
            )
    return configs.override(step.recipes[recipe](), {**wired, **given}, name=step.name)


def _names(source: str | FirstOf | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(source, FirstOf):
        return source.steps
    return (source,) if isinstance(source, str) else source


def _as_it_is(step: Step, config: Any, *, waits: bool) -> Link:
    if find_manifest(config.out) is None:
        begun = Draft(config.out).read_note("begun") is not None
        return Link(step, config, "begun" if begun else "to do")
    if waits:
        return Link(step, config, "unchecked", "published; is compared when what it reads is there")
    try:
        # Who published a folder knows best whether it is the same, and does nothing then.
        return Link(step, config, "published", manifest=step.job(config))
    except ArtifactError as error:
        return Link(step, config, "differs", str(error))
