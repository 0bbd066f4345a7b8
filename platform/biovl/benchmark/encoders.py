"""One interface to all models that can be evaluated: encoded images and texts to unit vectors.

    DIR                     published by pretrain, or in open_clip's layout (BiomedCLIP)
    local-dir:DIR           the same folder, built and preprocessed by stock open_clip
    ViT-B-32/laion2b_s34b_b79k, ViT-B-32/weights.pt, hf-hub:OWNER/NAME    by stock open_clip
    hf-hub:OWNER/NAME@REVISION    the same, from a commit, tag or branch
    ViT-B-32/untrained      random weights: the chance level
    DIR with config.json    transformers: CLIP, SigLIP; DINOv2 and ViT without text tower

Every model preprocesses images on the CPU (``prepare``) and embeds them on its device.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import open_clip
import torch
from torch import Tensor

from biovl.benchmark import interpolated, open_clip_models, transformers_models
from biovl.benchmark.config import SCHEME
from biovl.benchmark.image_tower import TrainableImageTower
from biovl.core.artifacts import MANIFEST, fingerprint
from biovl.core.errors import ArtifactError, BiovlError
from biovl.core.folders import Folder
from biovl.core.workers import Precision
from biovl.images.decode import MIN_SIDE_PX, TOO_SMALL, decode_rgb
from biovl.models import encoder as ours
from biovl.models import hub
from biovl.models.weight_files import local_copy, verify

# Shapes: B images or texts of a batch, D embedding.


class BenchmarkModel(Protocol):
    """Interface of a loaded model that can be evaluated."""

    has_text: bool
    """Whether the model has a text tower."""
    dim: int
    """Embedding dimension D."""
    logit_scale: float
    """Factor on similarities, not its logarithm."""
    context: int
    """Context length in tokens, including start and end; 0 without a text tower."""

    def crop(self, pixels_HWC: np.ndarray) -> np.ndarray:
        """Return a decoded image (RGB, uint8) preprocessed for the image tower."""
        ...

    def embed_pixels(self, pixels: np.ndarray) -> np.ndarray:
        """Return unit embeddings of a batch of ``crop`` results. float32, [B, D]."""
        ...

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Return unit embeddings of texts, truncated to the context length. float32, [B, D]."""
        ...

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        """Return which texts exceed the context length. bool, [B]."""
        ...

    def image_tower(self) -> TrainableImageTower:
        """Return the image tower for training. Training changes this model."""
        ...


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """Description of a model, known before its weights are loaded."""

    uri: str
    """Folder or name of the model."""
    kind: str
    """Which implementation loads it: this package, open_clip, transformers, or an interpolation of
    two of ours."""
    has_text: bool
    """Whether the model has a text tower."""
    fingerprint: str
    """Hash of its weights and settings."""
    revision: str | None = None
    """Commit of a name on the hub; None for others, or if it is unknown."""

    @property
    def source(self) -> str:
        """``uri`` to load the model from, with the commit if it is a name on the hub."""
        return self.uri if self.revision is None else hub.at(self.uri, self.revision)


def prepare(model: BenchmarkModel, data: bytes) -> np.ndarray:
    """Return the preprocessed pixels of an encoded image.

    Decoding is the same for all models: models differ only in preprocessing. Images are unusable
    for the same reasons as in annotate.

    Raises:
        BiovlError: If the image is unusable, with the reason.
    """
    decoded = decode_rgb(data)
    if decoded.pixels is None:
        raise BiovlError(decoded.defect or "")
    if min(decoded.pixels.shape[:2]) < MIN_SIDE_PX:
        raise BiovlError(TOO_SMALL)
    return model.crop(decoded.pixels)


def describe(uri: str) -> ModelDescription:
    """Return the description of a model without loading it.

    Raises:
        ArtifactError: If a folder does not contain a supported model.
        ConfigError: If a name is unknown to open_clip, or has no weights.
    """
    if uri.startswith(SCHEME):
        ends = [describe(folder) for folder in interpolated.folders(uri)]
        whole = interpolated.fingerprint(uri, [end.fingerprint for end in ends])
        return ModelDescription(uri=uri, kind="between", has_text=True, fingerprint=whole)
    if uri.startswith("hf-hub:"):
        commit = hub.commit(uri)
        known = _of_name(uri, commit=commit or "")
        return ModelDescription(
            uri=uri, kind="open_clip", has_text=True, fingerprint=known, revision=commit
        )
    if not uri.startswith("local-dir:") and not _is_folder(uri):
        name, _, weights = uri.partition("/")
        open_clip_models.check(name, weights)
        return ModelDescription(
            uri=uri, kind="open_clip", has_text=True, fingerprint=_of_name(uri, weights)
        )
    folder = uri.removeprefix("local-dir:")
    with local_copy(folder, with_weights=False) as path:
        if path is None or not path.is_dir():
            raise ArtifactError(f"{uri} does not exist: expected the folder of a model")
        if (path / ours.CONFIG).is_file():
            kind = "open_clip" if uri.startswith("local-dir:") else "ours"
            return ModelDescription(
                uri=uri, kind=kind, has_text=True, fingerprint=_of_folder(folder)
            )
        if not (path / "config.json").is_file():
            raise ArtifactError(
                f"{uri} has neither {ours.CONFIG} nor config.json: it is not a model, or not "
                "finished"
            )
        model_type = json.loads((path / "config.json").read_text()).get("model_type", "")
        has_text = transformers_models.has_text(model_type, uri)
    known = _of_folder(folder) + transformers_models.version(model_type)
    return ModelDescription(uri=uri, kind="transformers", has_text=has_text, fingerprint=known)


def _is_folder(uri: str) -> bool:
    if "://" in uri or Path(uri).expanduser().exists():
        return True
    # A path that does not exist is not a model name.
    return uri.startswith(("/", ".", "~"))


def load(
    model: str | ModelDescription, *, device: str = "cpu", precision: Precision = "float32"
) -> BenchmarkModel:
    """Return a model with its weights, on a device.

    Args:
        model: Folder or name of the model, or what ``describe`` returned for it.
        device: Device of its towers.
        precision: Precision of its towers.

    Raises:
        ArtifactError: If it does not exist, its weights cannot be read, or they have changed since
            ``describe``.
        ConfigError: If a name is unknown to open_clip, or has no weights.
    """
    uri = model if isinstance(model, str) else model.uri
    if isinstance(model, ModelDescription) and model.revision is not None:
        # Not described again: its commit is what is loaded, and not every worker reaches the Hub.
        known = model
    else:
        known = describe(uri)
    if isinstance(model, ModelDescription) and known.fingerprint != model.fingerprint:
        raise ArtifactError(
            f"{uri} was replaced since this run began, or the driver could not look up its commit "
            f"(found {known.fingerprint[:12]}, expected {model.fingerprint[:12]}): run the same "
            "command again, where the hub can be reached"
        )
    if known.kind == "between":
        return Ours(interpolated.load(uri, device=device, precision=precision))
    if known.kind == "open_clip":
        return open_clip_models.load(known.source, device=device, precision=precision)
    if known.kind == "transformers":
        with local_copy(uri) as folder:
            return transformers_models.load(Path(str(folder)), device=device, precision=precision)
    return Ours(ours.load(uri, device=device, precision=precision))


class Ours:
    """A model published by pretrain, or a folder in open_clip's layout, see ``BenchmarkModel``."""

    has_text = True

    def __init__(self, encoder: ours.Encoder) -> None:
        self._encoder = encoder
        self.dim = encoder.dim
        self.logit_scale = encoder.logit_scale
        self.context: int = encoder.tokenizer.context_length

    def crop(self, pixels_HWC: np.ndarray) -> np.ndarray:
        """Return an image preprocessed for the image tower. uint8, [H, W, 3]."""
        return self._encoder.preparation.crop(pixels_HWC)

    def embed_pixels(self, pixels: np.ndarray) -> np.ndarray:
        """Return unit embeddings of preprocessed images. float32, [B, D]."""
        return self._encoder.embed_pixels(pixels)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Return unit embeddings of texts. float32, [B, D]."""
        return self._encoder.embed_texts(texts)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        """Return which texts exceed the context length. bool, [B]."""
        return np.array([self._encoder.preparation.truncated(text) for text in texts], bool)

    def image_tower(self) -> TrainableImageTower:
        """Return the image tower for training. Training changes this model."""
        encoder = self._encoder
        preparation = encoder.preparation
        mean_C11 = torch.tensor(preparation.mean, device=encoder.device)[:, None, None]
        std_C11 = torch.tensor(preparation.std, device=encoder.device)[:, None, None]

        def features(pixels_BHWC: Tensor) -> Tensor:
            image_BCHW = pixels_BHWC.permute(0, 3, 1, 2).float() / 255
            feature_BD: Tensor = encoder.model.encode_image((image_BCHW - mean_C11) / std_C11)
            return feature_BD

        return TrainableImageTower(encoder.model, features)


def _of_name(uri: str, weights: str = "", commit: str = "") -> str:
    known = hashlib.blake2b(f"{uri} {open_clip.__version__}".encode(), digest_size=16)
    known.update(commit.encode())
    if weights and Path(weights).is_file():
        with open(weights, "rb") as stream:
            known.update(hashlib.file_digest(stream, "blake2b").digest())
    return known.hexdigest()


def _of_folder(uri: str) -> str:
    folder = Folder(uri)
    if folder.exists(MANIFEST):
        # The manifest stands for the weights, also where vectors are cached and nothing is loaded.
        verify(uri)
        return fingerprint(uri)
    known = hashlib.blake2b(digest_size=16)
    for name in folder.names(""):
        with folder.filesystem.open_input_stream(folder.at(name)) as stream:
            known.update(f"{name}\n".encode())
            while block := stream.read(1 << 24):
                known.update(block)
    return known.hexdigest()
