"""A trained model for inference: encoded images and texts in, unit vectors out.

A model is a folder in open_clip's ``local-dir:`` layout: stock open_clip loads models saved here,
and ``load`` reads models released in it (BiomedCLIP). Stock open_clip 3.3.0 has two limits that
``load`` does not have: it looks up the configuration of a transformers text tower on the Hugging
Face hub, under the name in ``hf_model_name``, and it cannot build ModernBERT (it passes
``add_pooling_layer``, which that model does not accept).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict
from open_clip.transformer import TextTransformer, text_global_pool
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from biovl.core.errors import ArtifactError, BiovlError
from biovl.core.workers import Precision
from biovl.images.decode import decode_rgb
from biovl.images.transforms import without_ends
from biovl.models import tokenization
from biovl.models.builders import open_clip
from biovl.models.builders.open_clip import Built, Described
from biovl.models.tokenization import Tokenizer
from biovl.models.weight_files import local_copy

CONFIG = "open_clip_config.json"
WEIGHTS = "open_clip_model.safetensors"
SHAPE = "config.json"
"""The configuration of a transformers text tower; transformers looks for the same file name."""

Item = TypeVar("Item")


def save(folder: Path, built: Built, state_dict: Mapping[str, Tensor]) -> None:
    """Write a model that ``open_clip.create_model_and_transforms("local-dir:FOLDER")`` loads.

        FOLDER/
          open_clip_config.json          both towers, and the image preprocessing
          open_clip_model.safetensors    float32
          config.json                    the text tower's, if it is a transformers model
          tokenizer.json …               if the tokenizer is not CLIP's

    Args:
        folder: Created if it does not exist.
        built: The model's configuration; its parameter values are not saved.
        state_dict: All tensors of the model, under the names of ``CustomTextCLIP``.

    Raises:
        ArtifactError: If the tensors are not those of the model.
    """
    expected = built.model.state_dict()
    different = sorted(expected.keys() ^ state_dict.keys())
    if different:
        raise ArtifactError(f"these are not the model's tensors; they differ in {different[:4]}")
    folder.mkdir(parents=True, exist_ok=True)
    built.tokenizer.save(folder)
    config = getattr(built.model.text, "config", None)
    if config is not None:
        (folder / SHAPE).write_text(json.dumps(config.to_dict(), indent=1, sort_keys=True) + "\n")
    own = {"size": built.image_size, "mean": built.mean, "std": built.std}
    preprocess = asdict(PreprocessCfg(**{**built.preprocess, **own}))
    values = {"model_cfg": _published(built), "preprocess_cfg": preprocess}
    (folder / CONFIG).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    # Copies: the format rejects tensors that share memory, such as tied weights.
    tensors = {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in state_dict.items()
    }
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def _published(built: Described) -> dict[str, Any]:
    """Return the configuration to publish."""
    cfg = built.model_cfg
    # Patch dropout is a setting of a training run, not of the model.
    vision = {key: value for key, value in cfg["vision_cfg"].items() if key != "patch_dropout"}
    return {**cfg, "vision_cfg": vision}


def load(uri: str, *, device: str = "cpu", precision: Precision = "float32") -> "Encoder":
    """Return the model in a folder, local or ``s3://``.

    Also reads releases in BiomedCLIP's layout. Only if the configuration of such a text tower is
    unknown, it is looked up on the Hugging Face Hub; nothing else is.

    Raises:
        ArtifactError: If there is no model, or the weights do not match its towers.
    """
    with local_copy(uri) as folder:
        seen = _preprocessing(folder, uri)
        built = open_clip.build(open_clip.Config(architecture=str(folder), weights=str(folder)))
    return Encoder(built, preprocess=seen, device=device, precision=precision)


def load_preparation(uri: str) -> "Preparation":
    """Return the preprocessing of a model's inputs; reads no weights. See ``load``.

    Raises:
        ArtifactError: If there is no model.
    """
    with local_copy(uri, with_weights=False) as folder:
        seen = _preprocessing(folder, uri)
        described = open_clip.describe(open_clip.Config(architecture=str(folder)))
        is_clip = not described.model_cfg["text_cfg"].get("hf_tokenizer_name")
        tokenizer = tokenization.make("" if is_clip else str(folder), described.context_length)
    return Preparation(described, tokenizer, seen)


def _preprocessing(folder: Path | None, uri: str) -> dict[str, Any]:
    if folder is None or not (folder / CONFIG).is_file():
        raise ArtifactError(f"{uri} has no {CONFIG}: it is not a model, or not finished")
    try:
        whole = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return dict(whole.get("preprocess_cfg", {}))
    except (ValueError, AttributeError) as error:
        raise ArtifactError(f"{uri}/{CONFIG} is not an open_clip configuration: {error}") from error


class Preparation:
    """Input preprocessing of a model: encoded images to pixels, texts to tokens. Can be pickled."""

    def __init__(
        self, described: Described, tokenizer: Tokenizer, preprocess: Mapping[str, Any]
    ) -> None:
        own = {"size": described.image_size, "mean": described.mean, "std": described.std}
        settings = merge_preprocess_dict(PreprocessCfg(), {**preprocess, **own})
        self.tokenizer = tokenizer
        self.dim: int = described.model_cfg["embed_dim"]
        """Embedding dimension."""
        self.image_size: int = described.image_size
        """Side in pixels."""
        self.mean, self.std = described.mean, described.std
        """Mean and standard deviation of RGB in 0..1."""
        # The last two transforms convert to a tensor and normalize: this is done next to the
        # towers, so that the pixels sent there are a quarter as large.
        steps = image_transform_v2(PreprocessCfg(**settings), is_train=False).transforms[:-2]
        # Resized to its shorter side, a line one pixel high would exhaust memory.
        is_center_crop = settings["resize_mode"] == "shortest"
        self._steps = [*([without_ends] if is_center_crop else []), *steps]

    def prepare(self, data: bytes, number: int = 0) -> np.ndarray:
        """Return the preprocessed pixels of an encoded image: uint8, shape [H, W, 3].

        They equal those of stock open_clip for evaluation: resized to the shorter side, bicubic,
        center crop, unless the model's configuration differs. Decoding is biovl's: EXIF rotation is
        applied, transparency is white, 16 bits are scaled; for plain RGB files both are equal.

        Raises:
            BiovlError: If the image is not usable; the message has ``number`` and the reason.
        """
        decoded = decode_rgb(data)
        if decoded.pixels is None:
            raise BiovlError(f"image {number} (counted from 0) is not usable: {decoded.defect}")
        return self.crop(decoded.pixels)

    def crop(self, pixels_HWC: np.ndarray) -> np.ndarray:
        """Return the result of ``prepare`` for a decoded image, RGB, uint8, shape [H, W, 3]."""
        image = Image.fromarray(pixels_HWC)
        for step in self._steps:
            image = step(image)
        return np.asarray(image)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the token ids of each text with start and end, truncated to the context; int32."""
        return self.tokenizer.encode(texts)

    def truncated(self, text: str) -> bool:
        """Return whether a text has more tokens than the context length."""
        return self.tokenizer.truncates(text)


def automatic_precision(device: str) -> Precision:
    """Return the precision that ``auto`` selects on this machine for a device type (``cuda``)."""
    is_bf16_fast = device == "cuda" and torch.cuda.is_bf16_supported()
    return "bfloat16" if is_bf16_fast else "float32"


class Encoder:
    """The two towers of a trained model, for inference."""

    def __init__(
        self,
        built: Built,
        *,
        preprocess: Mapping[str, Any] | None = None,
        device: str = "cpu",
        precision: Precision = "float32",
    ) -> None:
        """Switch the model to evaluation mode and move it to the device.

        Args:
            built: The model, with its weights and tokenizer.
            preprocess: Values of ``preprocess_cfg`` in ``open_clip_config.json``; None: those of
                the architecture or its weights.
            device: Device to compute on.
            precision: Precision to compute in.
        """
        self.model = built.model.eval().to(device)
        seen = built.preprocess if preprocess is None else preprocess
        self.preparation = Preparation(built, built.tokenizer, seen)
        self.tokenizer: Tokenizer = built.tokenizer
        self.dim: int = built.model_cfg["embed_dim"]
        self.device = torch.device(device)
        if precision == "auto":
            precision = automatic_precision(self.device.type)
        self._in_bf16 = precision == "bfloat16"
        self._mean_C11 = torch.tensor(built.mean, device=self.device)[:, None, None]
        self._std_C11 = torch.tensor(built.std, device=self.device)[:, None, None]

    @property
    def logit_scale(self) -> float:
        """Factor on similarities: 1 / temperature, not its logarithm."""
        return float(self.model.logit_scale.detach().exp())

    def embed_images(self, images: Sequence[bytes], *, batch_size: int = 64) -> np.ndarray:
        """Return unit vectors of encoded images (JPEG, PNG, TIFF …), float32, shape [N, D].

        Raises:
            BiovlError: If an image is not usable; the message has its number and the reason.
        """
        rows = [np.empty((0, self.dim), np.float32)]
        for first, some in _batches(images, batch_size):
            prepared = [
                self.preparation.prepare(data, first + number) for number, data in enumerate(some)
            ]
            rows.append(self.embed_pixels(np.stack(prepared)))
        return np.concatenate(rows)

    def embed_texts(self, texts: Sequence[str], *, batch_size: int = 64) -> np.ndarray:
        """Return unit vectors of texts, truncated to the context length, float32, shape [N, D]."""
        rows = [np.empty((0, self.dim), np.float32)]
        for _, some in _batches(texts, batch_size):
            rows.append(self.embed_tokens(self.preparation.encode(some)))
        return np.concatenate(rows)

    def embed_pixels(self, pixels_BHWC: np.ndarray) -> np.ndarray:
        """Return unit vectors of images from ``Preparation.prepare``, as one batch.

        Args:
            pixels_BHWC: uint8, of the model's size.

        Returns:
            float32, shape [B, D].
        """
        if not len(pixels_BHWC):
            return np.empty((0, self.dim), np.float32)
        pixels_BCHW = torch.tensor(pixels_BHWC, device=self.device).permute(0, 3, 1, 2)
        with torch.inference_mode():
            # Bit-identical to torchvision's ToTensor and Normalize.
            image_BCHW = pixels_BCHW.contiguous().to(torch.float32).div_(255)
            image_BCHW = image_BCHW.sub_(self._mean_C11).div_(self._std_C11)
            with self._computing():
                image_BD = self.model.encode_image(image_BCHW)
            return _unit(image_BD)

    def embed_tokens(self, texts: Sequence[np.ndarray]) -> np.ndarray:
        """Return unit vectors of texts from ``Preparation.encode``, as one batch.

        Tokens are padded only to the longest text of the batch, as queries are short. The other
        texts
        of a batch change a vector only in its last digits.

        Returns:
            float32, shape [B, D].
        """
        if not texts:
            return np.empty((0, self.dim), np.float32)
        tokens_BT = self._padded(texts).to(self.device)
        tower = self.model.text
        with torch.inference_mode():
            with self._computing():
                if isinstance(tower, TextTransformer):
                    text_BD = _pooled(tower, tokens_BT)
                else:
                    text_BD = self.model.encode_text(tokens_BT)
            return _unit(text_BD)

    def _computing(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._in_bf16)

    def _padded(self, texts: Sequence[np.ndarray]) -> Tensor:
        longest = max(len(tokens) for tokens in texts)
        tokens_BT = np.full((len(texts), longest), self.tokenizer.pad_id, np.int64)
        for row, tokens in zip(tokens_BT, texts, strict=True):
            row[: len(tokens)] = tokens
        return torch.from_numpy(tokens_BT)


def _pooled(tower: TextTransformer, tokens_BT: Tensor) -> Tensor:
    """Return the output of open_clip's own text tower for texts not padded to the context length.

    Its ``forward`` truncates the causal mask to their length only if there is a padding mask.
    """
    hidden_BTW, mask = tower._embeds(tokens_BT)
    if mask is not None:
        mask = mask[..., : hidden_BTW.shape[1], : hidden_BTW.shape[1]]
    hidden_BTW = tower.ln_final(tower.transformer(hidden_BTW, attn_mask=mask))
    pooled_BW: Tensor = text_global_pool(
        hidden_BTW, tokens_BT, tower.pool_type, eos_token_id=getattr(tower, "eos_id", None)
    )
    projection = tower.text_projection
    if projection is None:
        return pooled_BW
    projected_BD: Tensor = (
        projection(pooled_BW) if isinstance(projection, nn.Linear) else pooled_BW @ projection
    )
    return projected_BD


def _unit(rows_BD: Tensor) -> np.ndarray:
    unit_BD: np.ndarray = F.normalize(rows_BD.float(), dim=-1).cpu().numpy()
    return unit_BD


def _batches(items: Sequence[Item], size: int) -> Iterator[tuple[int, Sequence[Item]]]:
    for first in range(0, len(items), size):
        yield first, items[first : first + size]
