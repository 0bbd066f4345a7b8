"""The model of a configuration: built, or described on the meta device."""

from biovl.core import plugins
from biovl.core.errors import ArtifactError
from biovl.core.plugins import Plugin
from biovl.models import weight_files
from biovl.models.builders.open_clip import Built, Described
from biovl.pretrain.config import OptimConfig
from biovl.pretrain.locking import lock
from biovl.pretrain.optimizer import make_optimizer

_WEIGHTS = ("weights", "image_weights", "text_weights")


def build(model: Plugin, *, with_weights: bool) -> Built:
    """Build the model of a configuration; without weights if a checkpoint will be loaded.

    Raises:
        ConfigError: If the settings do not define a model.
        ArtifactError: If the tokenizer or the weights are unavailable, or do not fit.
    """
    if not with_weights:
        settings = {name: v for name, v in model.settings.items() if name not in _WEIGHTS}
        model = Plugin(model.name, settings)
    built: Built = plugins.make("models.builders", model)
    return built


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


def describe(model: Plugin, optim: OptimConfig | None = None) -> Described:
    """Return the model of a configuration without data, for counting; a locked tower is locked.

    Raises:
        ConfigError: If the settings do not define a model, or those of the optimizer do not fit it.
    """
    module, settings = plugins.resolve("models.builders", model)
    described: Described = module.describe(settings)
    check_optimizer(described, optim or OptimConfig())
    return described


def check_optimizer(described: Described, optim: OptimConfig) -> None:
    """Lock what is not trained, and check the settings of the optimizer.

    Raises:
        ConfigError: If they do not fit the model.
    """
    lock(described.model, optim)
    make_optimizer(described.model, optim)
