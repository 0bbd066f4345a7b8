"""The model that fine-tuning begins with, as a folder in open_clip's layout."""

from typing import Any

from biovl.benchmark import open_clip_models
from biovl.benchmark.encoders import ModelDescription
from biovl.core.errors import ConfigError
from biovl.models import encoder
from biovl.pretrain.publishing import publish_pretrained


def settings_of(known: ModelDescription) -> dict[str, Any]:
    """Return the settings with which the builder ``open_clip`` loads a model and its weights.

    Raises:
        ConfigError: If it is a model of transformers, or a name without weights.
    """
    uri = known.uri
    if known.kind == "transformers":
        raise ConfigError(
            f"model: {uri} is a model of transformers; finetune trains models in open_clip's "
            f"layout, with {encoder.CONFIG}"
        )
    if not _is_tag(known):
        place = known.source.removeprefix("local-dir:")
        return {"architecture": place, "weights": place}
    name, _, weights = uri.partition("/")
    if weights == open_clip_models.UNTRAINED:
        raise ConfigError(
            f"model: {uri} has no weights to begin with; pretrain begins from scratch"
        )
    return {"architecture": name, "weights": weights, **open_clip_models.inputs_of(name, weights)}


def base_folder(known: ModelDescription, out: str) -> str:
    """Return the folder of the model; one that is given by name is first published in ``out``.

    Args:
        known: The model.
        out: Folder for a model that is given by name.

    Raises:
        ArtifactError: If its weights are unavailable or do not fit.
    """
    settings = settings_of(known)
    if not _is_tag(known) and not known.uri.startswith("hf-hub:"):
        return str(settings["architecture"])
    publish_pretrained(known.uri, out, settings)
    return out


def _is_tag(known: ModelDescription) -> bool:
    is_stock = known.kind == "open_clip"
    return is_stock and not known.uri.startswith(("local-dir:", "hf-hub:"))
