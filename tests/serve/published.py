"""Small published models and indexes, without training: their vectors say little, but exactly."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from biovl import config, encoder
from biovl.models import open_clip
from biovl.storage import Draft, Manifest

VISION = {"layers": 1, "width": 32, "head_width": 16, "patch_size": 16, "image_size": 32}
TEXT = {"width": 32, "heads": 2, "layers": 1, "context_length": 16}


def publish_model(folder: Path, *, seed: int = 0) -> Path:
    """Publish a model of random values; those of two seeds are two models."""
    torch.manual_seed(seed)
    settings = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TEXT}
    built = open_clip.build(config.build(open_clip.Config, settings))
    encoder.save(folder, built, built.model.state_dict())
    notes = {"licenses": ["CC-BY-4.0"]}
    Draft(str(folder)).publish(
        Manifest(kind="model", config={"seed": seed}, counts={"steps": 0}, notes=notes)
    )
    return folder


def a_picture(seed: int = 0, size: tuple[int, int] = (48, 40), kind: str = "PNG") -> bytes:
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, kind)
    return stream.getvalue()
