"""Embeddings of images, or of texts, by a trained two-tower model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from biovl.annotate.annotators import NO_TEXT, LoadedModel, Precision, pixels_of
from biovl.models import encoder as encoders
from biovl.models.encoder import Preparation

# Shapes: B rows, H and W of the model's input square, T tokens of its context.

_PADDING = -1
"""Padding token up to the context length."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of embeddings: the model, and whether to embed images or texts."""

    weights: str
    """The model folder, published by pretrain or in open_clip's layout."""
    of: Literal["image", "text"] = "image"
    """What to embed: images give the column ``clip_image``, texts ``clip_text``."""
    text_column: str = "caption"
    """Column of the texts."""

    @property
    def column(self) -> str:
        """Name of the main column."""
        return f"clip_{self.of}"


def build(config: Config) -> "ClipImage | ClipText":
    """Return the annotator; only the model's configuration is read.

    Raises:
        ArtifactError: If there is no model.
    """
    preparation = encoders.load_preparation(config.weights)
    if config.of == "text":
        return ClipText(config, preparation)
    return ClipImage(config, preparation)


class ClipImage:
    """Annotator that embeds images with a two-tower model, as unit vectors."""

    reads = ("image",)
    counted = ()

    def __init__(self, config: Config, preparation: Preparation) -> None:
        self._config, self._preparation = config, preparation
        self.name = config.column
        self.writes, self.notes = _described(self.name, preparation.dim)

    def prepare(self, row: Mapping[str, Any]) -> np.ndarray | str:
        """Return the model's input square: uint8, shape [H, W, 3]."""
        pixels_HWC = pixels_of(row["image"])
        return pixels_HWC if isinstance(pixels_HWC, str) else self._preparation.crop(pixels_HWC)

    def load(self, device: str, precision: Precision) -> LoadedModel:
        """Return the image tower with its weights, on a device."""
        model = encoders.load(self._config.weights, device=device, precision=precision)
        return lambda prepared: {self.name: model.embed_pixels(prepared)}


class ClipText:
    """Annotator that embeds texts as unit vectors by a two-tower model."""

    counted = ()

    def __init__(self, config: Config, preparation: Preparation) -> None:
        self._config, self._tokenizer = config, preparation.tokenizer
        self.name = config.column
        self.reads = (config.text_column,)
        self.writes, self.notes = _described(self.name, preparation.dim)

    def prepare(self, row: Mapping[str, Any]) -> np.ndarray | str:
        """Return the tokens of a text, truncated to the context: int32, shape [T]."""
        text = row[self._config.text_column]
        if not isinstance(text, str) or not text.strip():
            return NO_TEXT
        (tokens,) = self._tokenizer.encode([text])
        padded_T = np.full(self._tokenizer.context_length, _PADDING, np.int32)
        padded_T[: len(tokens)] = tokens
        return padded_T

    def load(self, device: str, precision: Precision) -> LoadedModel:
        """Return the text tower with its weights, on a device."""
        model = encoders.load(self._config.weights, device=device, precision=precision)

        def embed(prepared: np.ndarray) -> dict[str, np.ndarray]:
            tokens = [padded_T[padded_T != _PADDING] for padded_T in prepared]
            return {self.name: model.embed_tokens(tokens)}

        return embed


def _described(name: str, dim: int) -> tuple[pa.Schema, dict[str, Any]]:
    schema = pa.schema([pa.field(name, pa.list_(pa.float16(), dim))])
    return schema, {"embedding": name, "dim": dim}
