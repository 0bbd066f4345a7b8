"""Models that are small and random, and images to look at."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest
from biovl.models import encoder
from biovl.models.builders import open_clip

DIM = 24


def save_dinov2(folder: Path, seed: int = 1) -> Path:
    """Write a DINOv2 of two layers as transformers does; its size is that of DINOv2, 518 px."""
    from transformers import Dinov2Config, Dinov2Model

    torch.manual_seed(seed)
    shape = {"hidden_size": DIM, "num_hidden_layers": 2, "num_attention_heads": 2}
    # Large random weights: with those of a beginning all images have much the same embedding.
    config = Dinov2Config(**shape, image_size=518, patch_size=14, initializer_range=0.3)
    Dinov2Model(config).eval().save_pretrained(folder)
    return folder


def save_clip(folder: Path, seed: int = 1) -> Path:
    """Write a CLIP of two small towers as pretrain does."""
    torch.manual_seed(seed)
    vision = {"layers": 1, "width": 32, "head_width": 16, "patch_size": 16, "image_size": 32}
    text = {"width": 32, "heads": 2, "layers": 1, "context_length": 24}
    settings = {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}
    built = open_clip.build(configs.build(open_clip.Config, settings))
    draft = Draft.begin(str(folder), "model", {"seed": seed})
    encoder.save(folder, built, built.model.state_dict())
    draft.publish(Manifest(kind="model", config={"seed": seed}, counts={}))
    return folder


def scene(seed: int, width: int = 90, height: int = 60) -> Image.Image:
    """Return an image of smooth, random colours."""
    rng = np.random.default_rng(seed)
    colours = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return colours.resize((width, height), Image.Resampling.BICUBIC)


def png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def write_table(folder: Path, parts: list[list[bytes | None]], row_group_size: int = 5) -> Path:
    """Write a table of images with captions."""
    folder.mkdir(parents=True)
    for number, images in enumerate(parts):
        captions = [f"caption {number} {row}" for row in range(len(images))]
        columns = {
            "image": pa.array(images, pa.binary()),
            "caption": pa.array(captions, pa.string()),
        }
        path = folder / f"part-{number:06d}-000.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return folder
