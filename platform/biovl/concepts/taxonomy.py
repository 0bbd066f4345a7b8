"""Taxonomy of image labels: panel types, global concepts, and local concepts below them.

Our taxonomy is a data file in this folder; custom files have the same format.
"""

import difflib
import functools
import itertools
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

from biovl.core import config as configs
from biovl.core.errors import BiovlError, ConfigError
from biovl.core.filesystems import open_location

_OURS = "taxonomy.yaml"
_NEAREST = 3


@dataclass(frozen=True)
class PanelType:
    """One answer to the question about panels."""

    panel_type: str
    panel_subtype: str | None
    """Content of the panels; None for a single panel."""
    question: str
    """Wording of the answer for reviewers."""


@dataclass(frozen=True)
class Taxonomy:
    """Names that votes may use. Names that differ in case, spaces and dashes are equal."""

    panels: tuple[PanelType, ...]
    concepts: Mapping[str, tuple[str, ...]]
    """Global concepts with their local concepts, in the order of the file."""
    aliases: Mapping[str, str]
    """Normalized aliases, with the concept of each."""

    def panel(self, panel_type: str, panel_subtype: str | None) -> PanelType:
        """Return the panel type with these names.

        Raises:
            ConfigError: If there is no such type; the message has the allowed names.
        """
        normalized = normalize_name(panel_type), normalize_name(panel_subtype or "")
        for panel in self.panels:
            if normalized == (
                normalize_name(panel.panel_type),
                normalize_name(panel.panel_subtype or ""),
            ):
                return panel
        known = " or ".join(
            _described(panel.panel_type, panel.panel_subtype) for panel in self.panels
        )
        raise ConfigError(
            f"panels cannot be {_described(panel_type, panel_subtype)}; expected {known}"
        )

    def global_concept(self, name: str) -> str:
        """Return the taxonomy's spelling of a global concept.

        Raises:
            ConfigError: If there is no such concept; the message has the nearest names.
        """
        return self._found("global", name, self._globals)

    def local_concept(self, name: str) -> str:
        """Return the taxonomy's spelling of a local concept.

        Raises:
            ConfigError: If there is no such concept; the message has the nearest names.
        """
        return self._found("local", name, self._locals)

    def globals_of(self, local: str) -> tuple[str, ...]:
        """Return the global concepts of a local concept; most have one.

        Raises:
            ConfigError: If the local concept does not exist.
        """
        name = self.local_concept(local)
        return tuple(above for above, below in self.concepts.items() if name in below)

    @functools.cached_property
    def local_concepts(self) -> tuple[str, ...]:
        """All local concepts without duplicates, in the order of the file."""
        return tuple(dict.fromkeys(itertools.chain(*self.concepts.values())))

    @functools.cached_property
    def _globals(self) -> dict[str, str]:
        return {normalize_name(name): name for name in self.concepts}

    @functools.cached_property
    def _locals(self) -> dict[str, str]:
        return {normalize_name(name): name for name in self.local_concepts}

    def _found(self, level: str, name: str, known: Mapping[str, str]) -> str:
        normalized = normalize_name(name)
        found = known.get(normalized) or known.get(normalize_name(self.aliases.get(normalized, "")))
        if found is not None:
            return found
        near = ", ".join(_nearest(normalized, known)) or f"none, of {len(known)} names"
        raise ConfigError(f"there is no {level} concept {name!r:.100}; nearest: {near}")


def normalize_name(name: str) -> str:
    """Return a name in lower case, without white space and dashes.

    Source:
        BIOMEDICA, arXiv 2501.07171, section 14.7. Full-width letters are converted and invisible
        characters removed in addition.
    """
    folded = unicodedata.normalize("NFKC", name).lower()
    return "".join(
        letter
        for letter in folded
        if letter != "−"
        and not letter.isspace()
        and unicodedata.category(letter) not in ("Pd", "Cf", "Cc")
    )


def load_taxonomy(path: str | None = None) -> Taxonomy:
    """Load a taxonomy from a YAML file, local or ``s3://``; None for the built-in one.

    A file has ``concepts`` (lists of local concepts by global concept), and optionally ``aliases``
    and ``panels``; panels default to the built-in ones.

    Raises:
        ConfigError: If the file does not exist or is invalid, with the position.
    """
    values, where = _read(path), path or _OURS
    concepts = _named(where, "concepts", values.get("concepts"))
    aliases = _named(where, "aliases", values.get("aliases", {}))
    made = Taxonomy(
        panels=_panels(where, values["panels"]) if "panels" in values else load_taxonomy().panels,
        concepts={
            name: _names(where, f"concepts.{name}", below) for name, below in concepts.items()
        },
        aliases={
            normalize_name(name): _name(where, f"aliases.{name}", meant)
            for name, meant in aliases.items()
        },
    )
    problems = [
        *_panel_problems(made.panels),
        *_concept_problems(made.concepts),
        *_alias_problems(made, aliases),
    ]
    if problems:
        raise ConfigError("\n  ".join([f"{where} is not a taxonomy:", *problems]))
    return made


def _nearest(wanted: str, known: Mapping[str, str]) -> list[str]:
    """Return the names nearest to a normalized one: those containing it, then similar ones."""
    part = [name for name in known if len(wanted) > 1 and wanted in name]
    alike = difflib.get_close_matches(wanted, known, _NEAREST, cutoff=0.5)
    return [known[name] for name in dict.fromkeys([*part, *alike])][:_NEAREST]


def _described(panel_type: str, panel_subtype: str | None) -> str:
    subtype = f" with {panel_subtype!r:.100}" if panel_subtype else ""
    return f"{panel_type!r:.100}{subtype}"


def _read(path: str | None) -> dict[str, Any]:
    if path is None:
        text = resources.files(__package__).joinpath(_OURS).read_bytes()
    else:
        try:
            filesystem, inner = open_location(path)
            with filesystem.open_input_stream(inner) as stream:
                text = stream.read()
        except (OSError, BiovlError) as error:
            raise ConfigError(f"the taxonomy {path} cannot be read: {error}") from error
    try:
        values = yaml.load(text, configs.UniqueKeys)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the taxonomy {path or _OURS} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path or _OURS} is not a taxonomy: expected a mapping of aliases, concepts, panels"
        )
    # Names with dots are names, not nested settings.
    unknown = sorted(str(name) for name in values.keys() - {"panels", "concepts", "aliases"})
    if unknown:
        raise ConfigError(
            f"{path or _OURS}: there is no field {', '.join(unknown)}; expected aliases, concepts, "
            "panels"
        )
    return values


def _panels(where: str, values: object) -> tuple[PanelType, ...]:
    if not isinstance(values, list) or not all(isinstance(item, dict) for item in values):
        raise ConfigError(f"{where}: panels must be a list of panel_type, panel_subtype, question")
    return tuple(
        configs.build(PanelType, {"panel_subtype": None, **item}, name=f"{where}: panels.{number}")
        for number, item in enumerate(values)
    )


def _named(where: str, part: str, values: object) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: {part} must be a mapping by name, got {values!r:.100}")
    return {_name(where, part, name): value for name, value in values.items()}


def _names(where: str, part: str, values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise ConfigError(f"{where}: {part} must be a list of local concepts, got {values!r:.100}")
    return tuple(_name(where, part, name) for name in values)


def _name(where: str, part: str, value: object) -> str:
    # YAML parses no, 3 and 2025-01-01 as other types than strings.
    if not isinstance(value, str):
        raise ConfigError(
            f"{where}: {part} must have names, got {value!r:.100}: write it in quotes"
        )
    return value


def _panel_problems(panels: Sequence[PanelType]) -> list[str]:
    if not panels:
        return ["panels: empty; leave it out for those of the paper"]
    problems, seen, with_subtype = [], set(), dict[str, bool]()
    for number, panel in enumerate(panels):
        kind, subtype = normalize_name(panel.panel_type), normalize_name(panel.panel_subtype or "")
        if not kind or not panel.question.strip():
            problems.append(f"panels.{number}: panel_type and question must not be empty")
        if (kind, subtype) in seen:
            problems.append(f"panels.{number}: {panel.panel_type!r} occurs twice")
        if with_subtype.setdefault(kind, bool(subtype)) != bool(subtype):
            problems.append(f"panels.{number}: {panel.panel_type!r} is with and without a subtype")
        seen.add((kind, subtype))
    return problems


def _concept_problems(concepts: Mapping[str, Sequence[str]]) -> list[str]:
    problems = [] if concepts else ["concepts: empty; expected lists of local concepts by global"]
    above: dict[str, str] = {}
    written: dict[str, str] = {}
    for name, below in concepts.items():
        where = f"concepts.{name}"
        problems += _name_problems(where, name)
        other = above.setdefault(normalize_name(name), name)
        if other != name:
            problems.append(f"{where}: {other!r} is the same name")
        if not below:
            problems.append(f"{where}: empty; expected at least one local concept")
        here: set[str] = set()
        for local in below:
            problems += _name_problems(where, local)
            first = written.setdefault(normalize_name(local), local)
            if normalize_name(local) in here:
                problems.append(f"{where}: {local!r} occurs twice")
            elif first != local:
                problems.append(f"{where}: {local!r} is written {first!r} elsewhere")
            here.add(normalize_name(local))
    return problems


def _name_problems(where: str, name: str) -> list[str]:
    if not normalize_name(name):
        return [f"{where}: a name without letters: {name!r}"]
    if ";" in name:
        return [f"{where}: {name!r} has a semicolon, which separates names in a list of votes"]
    if name != " ".join(name.split()):
        return [f"{where}: {name!r} begins or ends with space, or has more than one together"]
    return []


def _alias_problems(made: Taxonomy, aliases: Mapping[str, str]) -> list[str]:
    problems, seen = [], dict[str, str]()
    for name, meant in aliases.items():
        other = seen.setdefault(normalize_name(name), name)
        if other != name:
            problems.append(f"aliases.{name}: {other!r} is the same name")
        # A global concept may be renamed although a local one has the name, and the reverse.
        levels = [own for own in (made._globals, made._locals) if normalize_name(meant) in own]
        for level in levels:
            if normalize_name(name) in level:
                taken = level[normalize_name(name)]
                problems.append(f"aliases.{name}: there is a concept {taken!r}")
                break
        if not levels:
            problems.append(f"aliases.{name}: there is no concept {meant!r}")
    return problems
