"""A trained model as everyone else sees it: bytes and texts in, unit vectors out.

A model is a folder in open_clip's ``local-dir:`` layout, so that stock open_clip loads what is
saved here, and this what others released in it (BiomedCLIP). Stock open_clip 3.3.0 has two limits
that ``load`` here has not: it looks the shape of a transformers text tower up on the hub, under the
name in ``hf_model_name``, and it cannot build ModernBERT (it passes ``add_pooling_layer``, which
that model does not take).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from open_clip.hf_model import HFTextEncoder
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from biovl.errors import ArtifactError, BiovlError
from biovl.images.decode import decode_rgb
from biovl.models import open_clip
from biovl.models.open_clip import Built, Described
from biovl.tokenization import Tokenizer
from biovl.weight_files import local_copy

CONFIG = "open_clip_config.json"
WEIGHTS = "open_clip_model.safetensors"
SHAPE = "config.json"
"""The shape of a transformers text tower; where transformers looks for it, too."""

Item = TypeVar("Item")


def save(folder: Path, built: Built, state_dict: Mapping[str, Tensor]) -> None:
    """Write a model that ``open_clip.create_model_and_transforms("local-dir:FOLDER")`` loads.

        FOLDER/
          open_clip_config.json          both towers, and how images are prepared
          open_clip_model.safetensors    float32
          config.json                    the text tower's shape, if it is a transformers model
          tokenizer.json …               if the tokenizer is not CLIP's

    Args:
        folder: Made if it is not there.
        built: The model's description; the values in it are not saved.
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
    preprocess = asdict(PreprocessCfg(size=built.image_size, mean=built.mean, std=built.std))
    values = {"model_cfg": _published(built), "preprocess_cfg": preprocess}
    (folder / CONFIG).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    # Copies: tensors that share memory, as tied ones do, are refused by the format.
    tensors = {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in state_dict.items()
    }
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def _published(built: Described) -> dict[str, Any]:
    """Return the description that others read."""
    cfg = built.model_cfg
    # Leaving patches out belongs to a run, not to a model: who trains on chooses anew.
    vision = {key: value for key, value in cfg["vision_cfg"].items() if key != "patch_dropout"}
    return {**cfg, "vision_cfg": vision}


def load(uri: str, *, device: str = "cpu") -> "Encoder":
    """Return the model in a folder, local or ``s3://``, without asking the hub for anything.

    Also reads BiomedCLIP's release and others of its layout; where their text tower is of a shape
    we do not know, that alone is looked up on the hub.

    Raises:
        ArtifactError: If there is no model, or the weights are not those of its towers.
    """
    with local_copy(uri) as folder:
        if folder is None or not (folder / CONFIG).is_file():
            raise ArtifactError(f"{uri} has no {CONFIG}: it is not a model, or not finished")
        built = open_clip.build(open_clip.Config(architecture=str(folder), weights=str(folder)))
        seen = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("preprocess_cfg", {})
    return Encoder(built, preprocess=seen, device=device)


class Encoder:
    """Two towers for use, not for training."""

    def __init__(
        self, built: Built, *, preprocess: Mapping[str, Any] | None = None, device: str = "cpu"
    ) -> None:
        """Put a model to use; it is changed to evaluation and moved to the device."""
        self.model = built.model.eval().to(device)
        self.tokenizer: Tokenizer = built.tokenizer
        self.dim: int = built.model_cfg["embed_dim"]
        self.device = torch.device(device)
        own = {"size": built.image_size, "mean": built.mean, "std": built.std}
        settings = merge_preprocess_dict(PreprocessCfg(), {**(preprocess or {}), **own})
        self._prepare = image_transform_v2(PreprocessCfg(**settings), is_train=False)

    @property
    def logit_scale(self) -> float:
        """The factor on similarities: 1 / temperature, not its logarithm."""
        return float(self.model.logit_scale.detach().exp())

    def embed_images(self, images: Sequence[bytes], *, batch_size: int = 64) -> np.ndarray:
        """Return unit vectors of encoded images (JPEG, PNG, TIFF …), float32, shape [N, D].

        They are prepared as stock open_clip does for evaluation: resized to the shorter side,
        bicubic, the centre cut out. Decoding is ours: images are turned upright, transparency is
        white, 16 bits are scaled; on plain RGB files the two do not differ.

        Raises:
            BiovlError: If an image is not usable; says which and why.
        """
        rows = [np.empty((0, self.dim), np.float32)]
        for first, some in _batches(images, batch_size):
            pixels_BCHW = torch.stack(
                [self._prepared(first + number, data) for number, data in enumerate(some)]
            )
            with torch.inference_mode():
                image_BD = self.model.encode_image(pixels_BCHW.to(self.device), normalize=True)
            rows.append(image_BD.float().cpu().numpy())
        return np.concatenate(rows)

    def embed_texts(self, texts: Sequence[str], *, batch_size: int = 64) -> np.ndarray:
        """Return unit vectors of texts, cut to the context, float32, shape [N, D]."""
        rows = [np.empty((0, self.dim), np.float32)]
        for _, some in _batches(texts, batch_size):
            tokens_BT = self._padded(self.tokenizer.encode(some))
            with torch.inference_mode():
                text_BD = self.model.encode_text(tokens_BT.to(self.device), normalize=True)
            rows.append(text_BD.float().cpu().numpy())
        return np.concatenate(rows)

    def _prepared(self, number: int, data: bytes) -> Tensor:
        decoded = decode_rgb(data)
        if decoded.pixels is None:
            raise BiovlError(f"image {number} (counted from 0) is not usable: {decoded.defect}")
        pixels_CHW: Tensor = self._prepare(Image.fromarray(decoded.pixels))
        return pixels_CHW

    def _padded(self, captions: Sequence[np.ndarray]) -> Tensor:
        longest = max(len(tokens) for tokens in captions)
        # open_clip's own tower has a causal mask of one size.
        is_transformers = isinstance(self.model.text, HFTextEncoder)
        width = longest if is_transformers else self.tokenizer.context_length
        tokens_BT = np.full((len(captions), width), self.tokenizer.pad_id, np.int64)
        for row, tokens in zip(tokens_BT, captions, strict=True):
            row[: len(tokens)] = tokens
        return torch.from_numpy(tokens_BT)


def _batches(items: Sequence[Item], size: int) -> Iterator[tuple[int, Sequence[Item]]]:
    for first in range(0, len(items), size):
        yield first, items[first : first + size]
