"""A chain of jobs, each of which reads the folders that earlier jobs published.

A chain adds nothing to its steps: each step is an ordinary job with its own recipe and settings,
and only published folders are passed on. Published steps are therefore not repeated, and an
interrupted chain resumes.
"""

import dataclasses
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest, find_manifest
from biovl.core.config import Recipe
from biovl.core.errors import ArtifactError, BiovlError, ConfigError, FilesLost

SHORT = {"source": "harvest.source"}
"""Abbreviations of setting names: ``--set source.path=…``."""

State = Literal["published", "begun", "to do", "differs", "damaged", "unchecked"]
"""State of a step. ``published``: its output exists. ``begun``: it was interrupted. ``differs``: a
folder with other settings is published there. ``damaged``: it is published, but lacks files that
its manifest lists. ``unchecked``: a folder is published, but cannot be compared because its inputs
do not exist yet."""


@dataclass(frozen=True)
class FirstOf:
    """Source of an input: the first of several steps that is part of the chain."""

    steps: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a chain: a job and its inputs."""

    name: str
    folder: str
    """Name of its output folder in the folder of the chain."""
    recipes: Mapping[str, Recipe[Any]]
    job: Callable[..., Manifest]
    """Job that publishes ``config.out``; it returns immediately if this output is published. Its
    messages go to ``progress``, by default stderr."""
    check: Callable[[Any, Mapping[str, Any]], None] = lambda config, made: None
    """Raises an error if the job is known to fail. Called before any step starts, with the
    configurations of earlier steps that are not published yet, by output folder."""
    reads: Mapping[str, str | FirstOf | tuple[str, ...]] = field(default_factory=dict)
    """Step that publishes the input, for each input setting; ``STEP/PATH`` is a file or subfolder
    of its output. A tuple of steps is for a setting with several folders; steps that are not part
    of the chain are omitted."""

    @property
    def sources(self) -> tuple[str, ...]:
        """All steps that this step may read from."""
        return tuple(itertools.chain.from_iterable(map(_names, self.reads.values())))


@dataclass(frozen=True)
class Chain:
    """Definition of a chain: folder, steps and settings."""

    folder: str
    """Parent of all output folders, local or ``s3://``."""
    settings: Mapping[str, Mapping[str, Any]]
    """Settings of each step by name, including its recipe as ``recipe``."""
    name: str = ""
    """Suffix of output folders for which a folder with other settings is already published."""
    recipe: str = ""

    @property
    def suffix(self) -> str:
        """Suffix of folders and files of this name: ``-NAME``, empty without a name."""
        return f"-{self.name}" if self.name else ""


@dataclass(frozen=True)
class Link:
    """A step with its configuration and state."""

    step: Step
    config: Any
    state: State
    reason: str = ""
    """Why the published folder cannot be reused, settings that differ or files that are lost; or
    warnings that it did not have when it was published, such as a source that has changed."""
    manifest: Manifest | None = None
    """Manifest of the output, if it is published."""

    @property
    def is_refused(self) -> bool:
        """Whether the step can neither be reused nor run: other settings, or lost files."""
        return self.state in ("differs", "damaged")

    @property
    def out(self) -> str:
        """Output folder of the step."""
        return str(self.config.out)


class StepFailed(BiovlError):
    """A step failed; the message begins with the name of the step."""


def read_chain(steps: Sequence[Step], recipe: str, values: Mapping[str, Any]) -> Chain:
    """Return a chain from settings by dotted name.

    Args:
        steps: All available steps.
        recipe: Name of the recipe that the values are based on.
        values: ``folder``, ``name``, ``source.…``, and settings by step, such as
            ``pretrain.epochs``. A step is part of the chain if it has a ``recipe`` that is not
            None.

    Raises:
        ConfigError: If a name is unknown, or the folder is missing.
    """
    settings: dict[str, dict[str, Any]] = {step.name: {} for step in steps}
    own: dict[str, Any] = {}
    for setting, value in values.items():
        head, dot, rest = setting.partition(".")
        name = f"{SHORT[head]}{dot}{rest}" if head in SHORT else setting
        head, _, rest = name.partition(".")
        if head in ("folder", "name") and not rest:
            own[head] = str(value)
        elif head in settings and rest:
            # The last value wins, and keeps the order of the settings.
            settings[head].pop(rest, None)
            settings[head][rest] = value
        else:
            steps_named = ", ".join(f"{step.name}.…" for step in steps)
            hint = configs.nearest(head, ["folder", "name", *SHORT, *settings])
            raise ConfigError(
                f"there is nothing called {setting!r} to set; choose from folder, name, "
                f"{', '.join(f'{short}.…' for short in SHORT)}, {steps_named}{hint}"
            )
    if not own.get("folder"):
        raise ConfigError("folder is required: --set folder=DIR, or s3://…")
    if "/" in own.get("name", ""):
        raise ConfigError(f"name is a part of the name of a folder, got {own['name']!r}")
    enabled = {
        name: of_step for name, of_step in settings.items() if of_step.get("recipe") is not None
    }
    if not enabled:
        raise ConfigError("no step is enabled: --set STEP.recipe=NAME adds one")
    return Chain(own["folder"].rstrip("/"), enabled, own.get("name", ""), recipe)


def links(steps: Sequence[Step], chain: Chain) -> list[Link]:
    """Return the steps of a chain in order, with their current state; nothing is run.

    Raises:
        ConfigError: If a setting of any step is invalid.
    """
    result: list[Link] = []
    for step in steps:
        if step.name in chain.settings:
            result.append(link(step, chain, result))
    return result


def link(step: Step, chain: Chain, before: Sequence[Link]) -> Link:
    """Return a step with its configuration and current state.

    Args:
        step: The step.
        chain: The chain.
        before: The earlier steps of the chain.

    Raises:
        ConfigError: If a setting is invalid, or the step reads the output of a step that is not
            part of the chain.
    """
    plain = _configured(step, chain, before)
    waits = any(o.step.name in step.sources and o.state != "published" for o in before)
    current = _state_of(step, plain, waits=waits)
    if not chain.name or current.state in ("published", "damaged") or _was_begun_with(plain):
        return current
    beside = dataclasses.replace(plain, out=f"{plain.out}{chain.suffix}")
    return _state_of(step, beside, waits=waits)


def check(found: Sequence[Link]) -> None:
    """Check all steps before the first one is run.

    Raises:
        StepFailed: If a step is known to fail, or a published one has lost files; the message has
            the step and the reason.
    """
    made: dict[str, Any] = {}
    for each in found:
        if each.state == "published":
            continue
        if each.state == "damaged":
            raise StepFailed(f"Nothing was started.\n{each.step.name}: {each.reason}")
        try:
            each.step.check(each.config, made)
        except BiovlError as error:
            raise StepFailed(f"Nothing was started.\n{each.step.name} failed: {error}") from error
        made[each.out] = each.config


def reject_unused(names: Sequence[str], chain: Chain, steps: Sequence[Step]) -> None:
    """Reject settings of steps that are not part of the chain.

    Raises:
        ConfigError: If there is one; the message has the first such setting.
    """
    for name in names:
        head, _, rest = name.partition(".")
        left_out = {step.name for step in steps} - set(chain.settings)
        if head in left_out and rest != "recipe":
            raise ConfigError(
                f"{name} is set, but this chain leaves {head} out: --set {head}.recipe=NAME adds it"
            )


def refusal(found: Link, steps: Sequence[Step], chain: Chain) -> str:
    """Return the error message for an output folder that is refused, and ways to proceed."""
    if found.state == "damaged":
        return found.reason
    stale = {found.step.name}
    folders = [found.out]
    for step in steps:
        if step.name not in chain.settings or not stale & set(step.sources):
            continue
        stale.add(step.name)
        out = f"{chain.folder}/{step.folder}{chain.suffix}"
        if find_manifest(out) is not None:
            folders.append(out)
    remove = "aws s3 rm --recursive" if "://" in found.out else "rm -r"
    return "\n".join(
        [
            found.reason,
            "Nothing is overwritten. Keep both, and give what comes of the new settings a name:",
            f"  --set name=NAME      publishes {found.step.folder}-NAME, and what follows from it",
            "or remove what is to be made again, and type the same command again:",
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
        folders = [published[name] + inner for name, inner in _places(source) if name in published]
        if isinstance(source, tuple):
            wired[setting] = folders
        elif folders:
            wired[setting] = folders[0]
        else:
            raise ConfigError(
                f"{step.name} reads what {' or '.join(_names(source))} publishes, which this chain "
                f"leaves out: --set {step.name}.{setting}=DIR"
            )
    return configs.override(step.recipes[recipe](), {**wired, **given}, name=step.name)


def _names(source: str | FirstOf | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name, _ in _places(source))


def _places(source: str | FirstOf | tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the steps of a source, each with the path within its output, which begins with /."""
    if isinstance(source, FirstOf):
        source = source.steps
    each = (source,) if isinstance(source, str) else source
    return [(name, slash + inner) for name, slash, inner in (one.partition("/") for one in each)]


def _was_begun_with(config: Any) -> bool:
    """Return whether the draft in a step's folder was begun with these settings."""
    begun = Draft(config.out).read_note("begun")
    if begun is None:
        return False
    # Settings that do not change what is published are not noted.
    noted = begun["config"]
    plain = {name: value for name, value in configs.to_plain(config).items() if name in noted}
    return not configs.differences(noted, plain)


def _state_of(step: Step, config: Any, *, waits: bool) -> Link:
    recorded = find_manifest(config.out)
    if recorded is None:
        begun = Draft(config.out).read_note("begun") is not None
        return Link(step, config, "begun" if begun else "to do")
    if waits:
        return Link(
            step, config, "unchecked", "published; its settings are compared when its inputs exist"
        )
    try:
        # The job itself compares the settings, and returns immediately if they are the same.
        # What it says of its results was said when it published them.
        manifest = step.job(config, progress=io.StringIO())
    except FilesLost as error:
        return Link(step, config, "damaged", str(error))
    except ArtifactError as error:
        return Link(step, config, "differs", str(error))
    new = [warning for warning in manifest.warnings if warning not in recorded.warnings]
    reason = "\n".join(f"warning: {warning}" for warning in new)
    return Link(step, config, "published", reason, manifest)
