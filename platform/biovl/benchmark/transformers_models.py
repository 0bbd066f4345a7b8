"""Models of transformers in local folders: CLIP and SigLIP, and DINOv2 and ViT without text tower.

Nothing is downloaded, code in the folder is not executed, and only tensors are loaded from weight
files. Images are preprocessed according to ``preprocessor_config.json``, for DINOv2 by
``images.dinov2``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from biovl.benchmark.image_tower import TrainableImageTower
from biovl.benchmark.open_clip_models import computing, unit
from biovl.core.errors import ArtifactError
from biovl.core.workers import Precision
from biovl.images import dinov2

WITH_TEXT = ("clip", "siglip", "siglip2")
DINOV2 = ("dinov2", "dinov2_with_registers")
CLIP_IMAGES = "clip_vision_model"
IMAGES_ONLY = (*DINOV2, "dinov3_vit", "vit", CLIP_IMAGES)
PROJECTED = "CLIPVisionModelWithProjection"

_TEXTS = 64
# Preprocessing by model type, for folders without preprocessor_config.json.
_SIZE, _RESIZED = 224, 256
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def version(model_type: str) -> str:
    """Return a suffix of the model's fingerprint, which invalidates cached embeddings.

    Empty for types whose embeddings have never changed.
    """
    return "-normalised" if model_type == CLIP_IMAGES else ""


def has_text(model_type: str, uri: str) -> bool:
    """Return whether models of a type embed texts.

    Raises:
        ArtifactError: If the type is not supported.
    """
    if model_type not in (*WITH_TEXT, *IMAGES_ONLY):
        raise ArtifactError(
            f"{uri} is a transformers model of type {model_type!r}; supported are "
            f"{', '.join((*WITH_TEXT, *IMAGES_ONLY))}"
        )
    return model_type in WITH_TEXT


def load(folder: Path, *, device: str, precision: Precision) -> "Transformers":
    """Return the model in a folder, on a device.

    Raises:
        ArtifactError: If its weights, tokenizer or preprocessor cannot be read.
    """
    from transformers import AutoConfig, AutoModel, AutoTokenizer, CLIPVisionModelWithProjection
    from transformers.utils import logging

    logging.disable_progress_bar()
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(folder, **local)
        kind: Any = AutoModel
        if PROJECTED in (config.architectures or ()):
            kind = CLIPVisionModelWithProjection
        model, loading = kind.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, **local
        )
        tokenizer = None
        if has_text(config.model_type, str(folder)):
            tokenizer = AutoTokenizer.from_pretrained(folder, **local)
        # Preprocessed as in the annotator dinov2, whatever the folder contains.
        is_dinov2 = config.model_type in DINOV2
        processor = None if is_dinov2 else _processor(folder, config.model_type)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise ArtifactError(f"{folder} cannot be loaded by transformers ({reason})") from error
    # A classifier's ViT has no pooler, and embeddings do not need one.
    unused = ("position_ids", *(["pooler."] if config.model_type == "vit" else []))
    missing = sorted(
        name for name in loading["missing_keys"] if not any(part in name for part in unused)
    )
    if missing:
        raise ArtifactError(
            f"{folder} lacks {len(missing)} tensors of its model, such as {missing[0]}: its "
            "weights belong to another model"
        )
    return Transformers(model.eval().to(device), tokenizer, processor, device, precision)


def _processor(folder: Path, model_type: str) -> Any:
    from transformers import AutoImageProcessor, BitImageProcessor

    if (folder / "preprocessor_config.json").is_file():
        return AutoImageProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    if model_type not in IMAGES_ONLY:
        raise ArtifactError(f"{folder} has no preprocessor_config.json")
    return BitImageProcessor(
        size={"shortest_edge": _RESIZED},
        crop_size={"height": _SIZE, "width": _SIZE},
        resample=Image.Resampling.BICUBIC,
        image_mean=_MEAN,
        image_std=_STD,
    )


class Transformers:
    """A model of transformers, see ``encoders.BenchmarkModel``.

    Args:
        model: The model.
        tokenizer: None for a model without text tower.
        processor: Image preprocessor; None for DINOv2.
        device: Device of the model.
        precision: Precision of the model.
    """

    def __init__(
        self, model: Any, tokenizer: Any, processor: Any, device: str, precision: Precision
    ) -> None:
        self._model, self._tokenizer, self._processor = model, tokenizer, processor
        self._device, self._precision = torch.device(device), precision
        self.has_text = tokenizer is not None
        config = model.config
        self.context = config.text_config.max_position_embeddings if self.has_text else 0
        scale = getattr(model, "logit_scale", None)
        self.logit_scale = float(scale.detach().exp()) if scale is not None else 1.0
        # SigLIP was trained on texts padded to the context length.
        self._padding = "max_length" if config.model_type.startswith("siglip") else True
        self.dim = self.embed_pixels(self._blank()).shape[1]

    def _blank(self) -> np.ndarray:
        if self._processor is None:
            return np.zeros((1, dinov2.SIZE_PX, dinov2.SIZE_PX, 3), np.uint8)
        size = getattr(self._processor, "crop_size", None) or self._processor.size
        return np.zeros((1, 3, size["height"], size["height"]), np.float32)

    def crop(self, pixels_HWC: np.ndarray) -> np.ndarray:
        """Return the preprocessed image: float32, [3, H, W]; for DINOv2 uint8, [H, W, 3]."""
        if self._processor is None:
            return dinov2.crop(pixels_HWC)
        image = Image.fromarray(pixels_HWC)
        pixels = self._processor(images=image, return_tensors="np")["pixel_values"][0]
        return np.asarray(pixels, np.float32)

    def embed_pixels(self, pixels: np.ndarray) -> np.ndarray:
        """Return unit embeddings: the projection of CLIP and SigLIP, else the class token.

        An image tower of CLIP without its projection gives its class token after the last norm.
        """
        batch = torch.from_numpy(pixels).to(self._device)
        with torch.inference_mode(), computing(self._device, self._precision):
            return unit(self._features(batch))

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Return unit embeddings of texts. float32, [B, D]."""
        rows = [np.empty((0, self.dim), np.float32)]
        for first in range(0, len(texts), _TEXTS):
            some = self._tokenizer(
                list(texts[first : first + _TEXTS]),
                padding=self._padding,
                truncation=True,
                max_length=self.context,
                return_tensors="pt",
            ).to(self._device)
            with torch.inference_mode(), computing(self._device, self._precision):
                rows.append(unit(_tensor(self._model.get_text_features(**some))))
        return np.concatenate(rows)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        """Return which texts exceed the context length. bool, [B]."""
        counts = [len(self._tokenizer(text)["input_ids"]) for text in texts]
        return np.array(counts, np.int64) > self.context

    def image_tower(self) -> TrainableImageTower:
        """Return the image tower for training. Training changes this model."""
        return TrainableImageTower(self._model, self._features)

    def _features(self, pixels: torch.Tensor) -> torch.Tensor:
        pixels_BCHW = dinov2.normalize(pixels) if self._processor is None else pixels
        if self.has_text:
            return _tensor(self._model.get_image_features(pixel_values=pixels_BCHW))
        output = self._model(pixel_values=pixels_BCHW)
        class_BD: torch.Tensor
        if self._model.config.model_type == CLIP_IMAGES:
            # The last hidden state is that before the norm.
            projected = getattr(output, "image_embeds", None)
            class_BD = output.pooler_output if projected is None else projected
        else:
            class_BD = output.last_hidden_state[:, 0]
        return class_BD


def _tensor(output: Any) -> torch.Tensor:
    """Return features as a tensor; transformers 5 wraps them in an output object."""
    features: torch.Tensor = output if isinstance(output, torch.Tensor) else output.pooler_output
    return features
