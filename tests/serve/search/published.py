"""Small published models and indexes, without training: their vectors say little, but exactly."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from biovl.core import config
from biovl.core.artifacts import Draft, Input, Manifest, fingerprint
from biovl.core.shards import ShardWriter
from biovl.models import encoder
from biovl.models.builders import open_clip
from tests.index import small_index

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


def publish_index(folder: Path, model: Path, *, figures: int = 40) -> Path:
    """Publish an index of pictures by a model, and beside it the corpus that holds them.

    Figures are called after the index, ``index-b_7``; what they show are ``a_picture(7)``.
    """
    corpus = folder.parent / f"{folder.name}-corpus"
    (corpus / "train").mkdir(parents=True)
    rows, images, thumbnails = [], [a_picture(n) for n in range(figures)], b""
    with (corpus / "train" / "00000.tar").open("wb") as stream:
        shard = ShardWriter(stream)
        for number, image in enumerate(images):
            name = f"{folder.name}_{number}"
            caption = f"a picture of number {number}"
            place = shard.add(name, {"png": image, "txt": caption.encode()})
            small = a_picture(number, size=(24, 20), kind="JPEG")
            at = {"thumbnail_offset": len(thumbnails), "thumbnail_size": len(small)}
            at |= {"offset": place.offset, "size": place.size}
            at |= {"license": "CC-BY-4.0", "redistributable": True}
            rows.append(small_index.figure(number, figure_id=name, caption=caption, **at))
            thumbnails += small
        shard.finish()
    by = encoder.load(str(model))
    small_index.publish(
        folder,
        by.embed_images(images),
        captions_ND=by.embed_texts([row["caption"] for row in rows]),
        rows=rows,
        inputs=[
            Input(name="model", uri=str(model), fingerprint=fingerprint(str(model))),
            Input(name="corpus", uri=str(corpus), fingerprint="c" * 64),
        ],
        thumbnails=thumbnails,
        checksums=True,
    )
    return folder
