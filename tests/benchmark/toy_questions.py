"""Questions whose answers are the colour of an image, as a folder of VQA-RAD, and a tiny model."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from biovl.core import config
from biovl.models import encoder
from biovl.models.builders import open_clip
from biovl.models.encoder import Encoder

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}
VISION = {"layers": 1, "width": 32, "head_width": 16, "patch_size": 16, "image_size": 32}
TEXT = {"width": 32, "heads": 2, "layers": 1, "context_length": 16}


def picture(colour: str, seed: int) -> bytes:
    noise = np.random.default_rng(seed).integers(-20, 20, (32, 32, 3))
    stream = io.BytesIO()
    pixels = np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def rows_of(images: int) -> list[dict[str, Any]]:
    """Two questions about each image; every fourth image is for test."""
    rows = []
    for number in range(images):
        colour = list(COLOURS)[number % 3]
        for question, answer, kind in (
            ("Which colour is it?", colour, "OPEN"),
            ("Is it red?", "Yes" if colour == "red" else "No", "CLOSED "),
        ):
            rows.append(
                {
                    "qid": str(len(rows)),
                    "phrase_type": "test_freeform" if number % 4 == 3 else "freeform",
                    "image_name": f"{number}.png",
                    "question": question,
                    "question_frame": "NULL",
                    "answer": answer,
                    "answer_type": kind,
                }
            )
    return rows


def write_vqa_rad(folder: Path, images: int = 48) -> Path:
    (folder / "VQA_RAD Image Folder").mkdir(parents=True)
    for number in range(images):
        colour = list(COLOURS)[number % 3]
        path = folder / "VQA_RAD Image Folder" / f"{number}.png"
        path.write_bytes(picture(colour, number))
    (folder / "VQA_RAD Dataset Public.json").write_text(json.dumps(rows_of(images)))
    return folder


def tiny_encoder(**changes: Any) -> Encoder:
    settings = {"embed_dim": 8, "vision_cfg": VISION, "text_cfg": TEXT, **changes}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Encoder(open_clip.build(config.build(open_clip.Config, settings)))


def write_model(folder: Path) -> Path:
    settings = {"embed_dim": 8, "vision_cfg": VISION, "text_cfg": TEXT}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        built = open_clip.build(config.build(open_clip.Config, settings))
    encoder.save(folder, built, built.model.state_dict())
    return folder
