"""The model of a configuration: with its values, or described without them."""

from biovl import plugins
from biovl.models.open_clip import Built, Described
from biovl.plugins import Plugin

_WEIGHTS = ("weights", "image_weights", "text_weights")


def build(model: Plugin, *, with_weights: bool) -> Built:
    """Return the model of a configuration; without weights where a checkpoint has its values.

    Raises:
        ConfigError: If the settings do not make a model.
        ArtifactError: If the tokenizer or the weights cannot be had, or do not fit.
    """
    if not with_weights:
        settings = {name: v for name, v in model.settings.items() if name not in _WEIGHTS}
        model = Plugin(model.name, settings)
    built: Built = plugins.make("models", model)
    return built


def describe(model: Plugin) -> Described:
    """Return the model of a configuration without values, to count what it needs.

    Raises:
        ConfigError: If the settings do not make a model.
    """
    module, settings = plugins.found("models", model)
    described: Described = module.describe(settings)
    return described
