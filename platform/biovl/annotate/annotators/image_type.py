"""Image types by zero-shot classification: the type of the nearest keyword.

BiomedCLIP estimated the frequency of image types in PMC in this way (its Fig. 1B), with keywords
for each type of a taxonomy, which the authors did not publish; ours are in ``image_types.yaml``.
Rare types are overcounted, as the paper notes about its own numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from biovl.annotate.annotators import LoadedModel, Precision, file_bytes, pixels_of
from biovl.core.errors import ConfigError
from biovl.models import encoder as encoders
from biovl.models.encoder import Preparation

# Shapes: B images, K keywords, D embedding.


@dataclass(frozen=True, kw_only=True)
class Config:
    """The model and the keywords to compare with."""

    weights: str
    """The model folder, published by pretrain or in open_clip's layout."""
    keywords: str = ""
    """A YAML file with a list of keywords by type, local or ``s3://``; empty: the built-in file."""
    prompt: str = "{}"
    """Template of the text that is embedded for a keyword: ``this is a photo of {}``."""

    @property
    def column(self) -> str:
        """Name of the main column."""
        return "image_type"

    @property
    def files(self) -> dict[str, str]:
        """Files that the column depends on, in addition to the model."""
        return {"keywords": self.keywords} if self.keywords else {}

    def __post_init__(self) -> None:
        if "{}" not in self.prompt:
            raise ValueError(f"prompt must contain {{}} for the keyword, got {self.prompt!r}")


def build(config: Config) -> "ImageType":
    """Return the annotator; only the model's configuration is read.

    Raises:
        ArtifactError: If there is no model.
        ConfigError: If the file of keywords is invalid.
    """
    keywords = read_keywords(config.keywords)
    return ImageType(config, keywords, encoders.load_preparation(config.weights))


def read_keywords(uri: str = "") -> dict[str, list[str]]:
    """Return the keywords of each type, from a file or, by default, the built-in ones.

    Raises:
        ConfigError: If the file does not exist or is invalid.
    """
    if not uri:
        return _checked(
            files("biovl.annotate.annotators").joinpath("image_types.yaml").read_text(), "ours"
        )
    return _checked(file_bytes("keywords", uri), uri)


def _checked(text: str | bytes, uri: str) -> dict[str, list[str]]:
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"keywords: {uri} is not YAML: {error}") from error
    is_good = isinstance(values, dict) and all(
        isinstance(words, list) and words and all(isinstance(word, str) for word in words)
        for words in values.values()
    )
    if not is_good or not values:
        raise ConfigError(
            f"keywords: {uri} must hold a list of keywords for each type (X-ray: [radiograph, …])"
        )
    return {str(name): list(words) for name, words in values.items()}


class ImageType:
    """Assigns images the type of their nearest keyword, with the similarity."""

    reads = ("image",)
    writes = pa.schema(
        [pa.field("image_type", pa.string()), pa.field("image_type_score", pa.float32())]
    )
    counted = ("image_type",)

    def __init__(
        self, config: Config, keywords: Mapping[str, list[str]], preparation: Preparation
    ) -> None:
        self._config, self._keywords, self._preparation = config, keywords, preparation
        self.name = config.column
        self.notes: dict[str, Any] = {
            "keywords": dict(keywords),
            "score": "cosine of the image and its nearest keyword",
        }

    def prepare(self, row: Mapping[str, Any]) -> np.ndarray | str:
        """Return the model's input square: uint8, shape [H, W, 3]."""
        pixels_HWC = pixels_of(row["image"])
        return pixels_HWC if isinstance(pixels_HWC, str) else self._preparation.crop(pixels_HWC)

    def load(self, device: str, precision: Precision) -> LoadedModel:
        """Return a function from images to their types, and similarities, each of shape [B]."""
        model = encoders.load(self._config.weights, device=device, precision=precision)
        types = [name for name, words in self._keywords.items() for _ in words]
        texts = [
            self._config.prompt.replace("{}", word)
            for words in self._keywords.values()
            for word in words
        ]
        types_K, keywords_KD = np.array(types, object), model.embed_texts(texts)

        def nearest(prepared: np.ndarray) -> dict[str, np.ndarray]:
            # Ties go to the first keyword.
            similarity_BK = model.embed_pixels(prepared) @ keywords_KD.T
            nearest_B = similarity_BK.argmax(axis=1)
            score_B = similarity_BK[np.arange(len(nearest_B)), nearest_B]
            return {"image_type": types_K[nearest_B], "image_type_score": score_B}

        return nearest
