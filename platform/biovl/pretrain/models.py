"""The model of a configuration: built, or described on the meta device."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.artifacts import Input, recorded_inputs
from biovl.core.errors import ArtifactError
from biovl.core.plugins import Plugin
from biovl.models import hub, weight_files, weight_identity
from biovl.models.builders.open_clip import Built, Described
from biovl.pretrain.config import OptimConfig, PretrainConfig
from biovl.pretrain.locking import lock
from biovl.pretrain.optimizer import make_optimizer

_WEIGHTS = ("weights", "image_weights", "text_weights")
_ON_HUB = (*_WEIGHTS, "architecture")
"""Settings that may be names on the hub."""
_KEYS = tuple(f"{name} " for name in _WEIGHTS)

# SigLIP, section 3.3, and open_clip's --siglip. Without a bias the N - 1 pairs of an image that do
# not match have a probability of one half, and the loss of 4,096 pairs begins at 3,000, not at 10.
_SIGLIP = {"init_logit_scale": math.log(10), "init_logit_bias": -10.0}


def complete_model(config: PretrainConfig) -> PretrainConfig:
    """Return a configuration whose model has the bias that its loss trains.

    With ``step.loss=siglip`` a model without a bias gets SigLIP's initial bias and scale, unless
    they are set. Weights that have them replace both.

    Raises:
        ConfigError: If the settings do not define a model, or cannot give it a bias.
    """
    if config.step.loss != "siglip" or describe(config.model).model.logit_bias is not None:
        return config
    settings = {name: v for name, v in config.model.settings.items() if v is not None}
    return replace(config, model=replace(config.model, settings={**_SIGLIP, **settings}))


def build(model: Plugin, *, with_weights: bool) -> Built:
    """Build the model of a configuration; without weights if a checkpoint will be loaded.

    Raises:
        ConfigError: If the settings do not define a model.
        ArtifactError: If the tokenizer or the weights are unavailable, or do not fit.
    """
    if with_weights:
        built: Built = plugins.make("models.builders", model)
        return built
    settings = {name: v for name, v in model.settings.items() if name not in _WEIGHTS}
    empty: Built = plugins.make("models.builders", Plugin(model.name, settings))
    # Images are prepared as the weights of the configuration state.
    return replace(empty, preprocess=describe(model).preprocess)


def check_weights(model: Plugin, *, ask_hub: bool = True) -> None:
    """Check that the weights of a configuration exist, without reading them.

    Without ``ask_hub``, names on the Hugging Face Hub are not checked: a dry run needs no network.

    Raises:
        ArtifactError: If weights do not exist, with the name of the setting.
    """
    _, settings = plugins.resolve("models.builders", model)
    for name in _WEIGHTS:
        source = getattr(settings, name, "")
        if not source:
            continue
        stems = weight_files.WHOLE if name == "weights" else weight_files.TOWER
        try:
            weight_files.check_existence(
                source,
                stems,
                architecture=getattr(settings, "architecture", ""),
                ask_hub=ask_hub,
            )
        except ArtifactError as error:
            raise ArtifactError(f"model.{name}: {error}") from error


def pins_of(model: Plugin, recorded: Mapping[str, str] | None) -> dict[str, str]:
    """Return ``hub.pins`` of the settings of a model that may name Hub repositories."""
    return hub.pins((str(model.settings.get(name) or "") for name in _ON_HUB), recorded)


def pinned_model(model: Plugin, pins: Mapping[str, str]) -> Plugin:
    """Return the settings of a model with its names on the Hub pinned to commits."""
    settings = {
        name: pins.get(value, value) if name in _ON_HUB else value
        for name, value in model.settings.items()
    }
    return replace(model, settings=settings)


def weights_of(config: PretrainConfig, pins: Mapping[str, str] | None = None) -> list[Input]:
    """Return files and folders of initial weights as inputs of a run's manifest.

    Args:
        config: Configuration of the run.
        pins: ``pins_of`` its model, so that the loaded commits are fingerprinted.
    """
    return identify_weights(named_weights(config), config.out, pins)


def named_weights(config: PretrainConfig) -> list[tuple[str, str]]:
    """Return the names and URIs of a run's settings for initial weights; none for a fork."""
    if config.from_:
        return []
    _, settings = plugins.resolve("models.builders", config.model)
    named = ((name, getattr(settings, name, "")) for name in _WEIGHTS)
    return [(name, uri) for name, uri in named if uri]


def identify_weights(
    named: Iterable[tuple[str, str]], out: str, pins: Mapping[str, str] | None = None
) -> list[Input]:
    """Return files and folders of initial weights as inputs of what is published in ``out``.

    Tags of open_clip are left out. If a job in ``out`` has recorded no weights, because it was
    started by an earlier version, all are left out. Weights that no longer exist keep their
    recorded fingerprint: a run with a checkpoint does not read them.
    """
    recorded = recorded_inputs(out)
    # "image_weights URI"; other names are those of corpora.
    if recorded is not None and not any(key.startswith(_KEYS) for key in recorded):
        return []
    inputs = []
    for name, uri in named:
        key = f"{name} {configs.normalized_location(uri)}"
        source = (pins or {}).get(uri, uri)
        found = weight_identity.fingerprint_of(source) or (recorded or {}).get(key)
        if found is not None:
            inputs.append(Input(name=name, uri=uri, fingerprint=found))
    return inputs


def check_unchanged_weights(config: PretrainConfig) -> None:
    """Verify that a run's initial weights are still those that it recorded when it began.

    Raises:
        ArtifactError: If they have changed.
    """
    recorded = recorded_inputs(config.out) or {}
    for name, uri in named_weights(config):
        weight_identity.check_unchanged(
            uri, recorded.get(f"{name} {configs.normalized_location(uri)}")
        )


def describe(model: Plugin, optim: OptimConfig | None = None) -> Described:
    """Return the model of a configuration on ``meta``, with locked parameters frozen.

    Raises:
        ConfigError: If the settings do not define a model, or those of the optimizer do not fit it.
    """
    module, settings = plugins.resolve("models.builders", model)
    described: Described = module.describe(settings)
    check_optimizer(described, optim or OptimConfig())
    return described


def check_optimizer(described: Described, optim: OptimConfig) -> None:
    """Freeze the parameters that are locked, and check the settings of the optimizer.

    Raises:
        ConfigError: If the settings do not fit the model.
    """
    lock(described.model, optim)
    make_optimizer(described.model, optim)
