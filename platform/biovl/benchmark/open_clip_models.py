"""Models built and preprocessed by stock open_clip, by name or from a ``local-dir:`` folder."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from open_clip.pretrained import get_pretrained_cfg
from PIL import Image

from biovl.benchmark.image_tower import TrainableImageTower
from biovl.core.config import nearest
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.workers import Precision
from biovl.models.hub import client_errors, split
from biovl.models.weight_files import local_copy

UNTRAINED = "untrained"
"""In place of weights: random ones, the chance level."""

_TEXTS = 64


def check(name: str, weights: str) -> None:
    """Check that open_clip knows a model name and its weights.

    Raises:
        ConfigError: If not; the message has known names.
    """
    if name not in open_clip.list_models():
        names = open_clip.list_models()
        near = [known for known in names if known.startswith(name[:5])] or names[:3]
        raise ConfigError(
            f"there is no folder and no model of open_clip called {name!r}; names of models are "
            f"{', '.join(near)} …{nearest(name, names)}"
        )
    tags = open_clip.list_pretrained_tags_by_model(name)
    if weights == UNTRAINED or weights in tags or (weights and Path(weights).is_file()):
        return
    lack = f"no weights {weights!r}" if weights else "no weights by itself"
    raise ConfigError(
        f"{name} has {lack}: write {name}/TAG with a tag of open_clip ({', '.join(tags) or 'none'})"
        f", {name}/FILE with a file of weights, or {name}/{UNTRAINED} for a random baseline"
    )


def inputs_of(name: str, weights: str) -> dict[str, Any]:
    """Return the settings of pretrained weights of open_clip, as named in ``models.builders``.

    These are the activation, and mean and standard deviation of the pixels. Empty if ``weights``
    is a file.
    """
    tag = get_pretrained_cfg(name, weights)
    if not tag:
        return {}
    return {
        "quick_gelu": bool(tag.get("quick_gelu")),
        "image_mean": list(tag["mean"]),
        "image_std": list(tag["std"]),
    }


def load(uri: str, *, device: str, precision: Precision) -> "OpenClip":
    """Return a loaded model; validate the name with ``check`` before.

    Raises:
        ArtifactError: If its weights or its tokenizer are unavailable.
    """
    if uri.startswith("local-dir:"):
        with local_copy(uri) as folder:
            return _made(f"local-dir:{folder}", None, uri, device, precision)
    if uri.startswith("hf-hub:"):
        name, revision = split(uri)
        return _made(f"hf-hub:{name}", None, uri, device, precision, revision)
    name, _, weights = uri.partition("/")
    if weights != UNTRAINED:
        return _made(name, weights, uri, device, precision)
    with torch.random.fork_rng():
        # The same weights each time.
        torch.manual_seed(0)
        created: Any = open_clip.create_model_and_transforms(name, device=device)
    model, _, preprocess = created
    return OpenClip(model.eval(), preprocess, open_clip.get_tokenizer(name), device, precision)


def _made(
    name: str,
    weights: str | None,
    uri: str,
    device: str,
    precision: Precision,
    revision: str | None = None,
) -> "OpenClip":
    try:
        with _downloads_from(revision):
            created: Any = open_clip.create_model_from_pretrained(
                name, pretrained=weights, device=device
            )
            tokenizer: Any = open_clip.get_tokenizer(name)
    except client_errors(OSError, KeyError, ImportError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise ArtifactError(
            f"{uri} cannot be loaded by open_clip ({reason}); where there is no network, give a "
            "local file or folder"
        ) from error
    model, preprocess = created
    return OpenClip(model.eval(), preprocess, tokenizer, device, precision)


@contextlib.contextmanager
def _downloads_from(revision: str | None) -> Iterator[None]:
    """Let open_clip download a name from a revision in the block: it has no setting for it."""
    factory: Any = open_clip.factory
    download = factory.download_pretrained_from_hf
    factory.download_pretrained_from_hf = functools.partial(download, revision=revision)
    try:
        yield
    finally:
        factory.download_pretrained_from_hf = download


class OpenClip:
    """A model of stock open_clip, see ``encoders.BenchmarkModel``."""

    has_text = True

    def __init__(
        self, model: Any, preprocess: Any, tokenizer: Any, device: str, precision: Precision
    ) -> None:
        self._model, self._preprocess, self._tokenizer = model, preprocess, tokenizer
        self._device = torch.device(device)
        self._precision = precision
        self.context: int = tokenizer.context_length
        self.logit_scale = float(model.logit_scale.detach().exp())
        self.dim = self.embed_texts([""]).shape[1]

    def crop(self, pixels_HWC: np.ndarray) -> np.ndarray:
        """Return an image preprocessed for the image tower. float32, [3, H, W], normalized."""
        prepared: np.ndarray = self._preprocess(Image.fromarray(pixels_HWC)).numpy()
        return prepared

    def embed_pixels(self, pixels: np.ndarray) -> np.ndarray:
        """Return unit embeddings of preprocessed images. float32, [B, D]."""
        with torch.inference_mode(), computing(self._device, self._precision):
            image_BD = self._model.encode_image(torch.from_numpy(pixels).to(self._device))
        return unit(image_BD)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Return unit embeddings of texts. float32, [B, D]."""
        rows = []
        for first in range(0, len(texts), _TEXTS):
            tokens_BT = self._tokenizer(list(texts[first : first + _TEXTS])).to(self._device)
            with torch.inference_mode(), computing(self._device, self._precision):
                rows.append(unit(self._model.encode_text(tokens_BT)))
        return np.concatenate(rows) if rows else np.empty((0, self.dim), np.float32)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        """Return which texts exceed the context length. bool, [B]."""
        inner = getattr(self._tokenizer, "tokenizer", None)
        if inner is not None:
            counts = [len(inner(text)["input_ids"]) for text in texts]
        else:
            counts = [len(self._tokenizer.encode(text)) + 2 for text in texts]
        return np.array(counts, np.int64) > self.context

    def image_tower(self) -> TrainableImageTower:
        """Return the image tower for training. Training changes this model."""
        return TrainableImageTower(self._model, self._model.encode_image)


def unit(rows_BD: torch.Tensor) -> np.ndarray:
    """Return L2-normalised rows, float32, on the CPU."""
    unit_BD: np.ndarray = torch.nn.functional.normalize(rows_BD.float(), dim=-1).cpu().numpy()
    return unit_BD


def computing(device: torch.device, precision: Precision) -> torch.autocast:
    """Return an autocast context for a precision; auto is bfloat16 on GPUs that support it."""
    is_fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
    in_bf16 = precision == "bfloat16" or (precision == "auto" and is_fast)
    return torch.autocast(device.type, torch.bfloat16, enabled=in_bf16)
