"""Prompt templates: one file per version, identified by its hash."""

import hashlib
import html
import string
from dataclasses import dataclass
from importlib.resources import files

import yaml

NAMES = ("system", "augment", "assess", "refine", "repair")


@dataclass(frozen=True)
class PromptTemplates:
    """Prompt templates of the steps, with placeholders in braces."""

    texts: dict[str, str]
    sha256: str

    def fill(self, name: str, **values: str | int) -> str:
        """Return a prompt; values are escaped, so that none of them closes a tag."""
        escaped = {key: html.escape(str(value), quote=False) for key, value in values.items()}
        return self.texts[name].format(**escaped)


def read_builtin(version: str) -> bytes | None:
    """Return the file with a built-in version of the prompts; None if it does not exist."""
    file = files("biovl.annotate.longcap.prompts").joinpath(f"{version}.yaml")
    return file.read_bytes() if file.is_file() else None


def parse_templates(data: bytes) -> PromptTemplates:
    """Return the prompt templates in a file.

    Raises:
        ValueError: If a template is missing, or contains an unknown placeholder.
    """
    try:
        templates = yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ValueError(f"prompts are not YAML: {error}") from error
    if not isinstance(templates, dict) or any(
        not isinstance(templates.get(name), str) for name in NAMES
    ):
        raise ValueError(f"prompts must have a text for each of {', '.join(NAMES)}")
    for name in NAMES:
        placeholders = {
            field for _, field, _, _ in string.Formatter().parse(templates[name]) if field
        }
        if placeholders - FILLED[name]:
            unknown = ", ".join(sorted(placeholders - FILLED[name]))
            raise ValueError(f"prompt {name} has the unknown placeholder {unknown}")
    return PromptTemplates(
        {name: templates[name] for name in NAMES}, hashlib.sha256(data).hexdigest()
    )


FILLED = {
    "system": set[str](),
    "augment": {"caption", "citing", "abstract", "acronyms", "least_words", "most_words"},
    "assess": {"draft"},
    "refine": {"draft", "feasible", "not_feasible"},
    "repair": {"problem"},
}
"""Placeholders available to each template."""
