"""Load models whose towers give token features: those in open_clip's layout."""

import torch

from biovl.benchmark import encoders, open_clip_models
from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.models import encoder
from biovl.models.builders import open_clip
from biovl.models.encoder import Encoder


def open_encoder(uri: str, *, device: str) -> Encoder:
    """Return a model by its name in ``benchmark.encoders``.

    Raises:
        ArtifactError: If it does not exist, or its weights cannot be read.
        ConfigError: If it is a model of transformers, or a name without weights.
    """
    kind = encoders.describe(uri).kind
    if kind == "transformers":
        raise ConfigError(
            f"{uri} is a model of transformers: vqa takes those of open_clip, in a folder with "
            f"{encoder.CONFIG} or by a name such as ViT-B-32/laion2b_s34b_b79k"
        )
    if kind == "ours" or uri.startswith("local-dir:"):
        return encoder.load(uri.removeprefix("local-dir:"), device=device)
    if uri.startswith("hf-hub:"):
        return Encoder(
            open_clip.build(open_clip.Config(architecture=uri, weights=uri)), device=device
        )
    name, _, weights = uri.partition("/")
    weights_given = "" if weights == open_clip_models.UNTRAINED else weights
    with torch.random.fork_rng():
        torch.manual_seed(0)
        inputs = open_clip_models.inputs_of(name, weights_given)
        settings = {"architecture": name, "weights": weights_given, **inputs}
        built = open_clip.build(configs.build(open_clip.Config, settings))
    return Encoder(built, device=device)
