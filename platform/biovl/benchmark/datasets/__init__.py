"""What a benchmark is made of: images, and labels, texts or questions about them.

Each file here reads one format and is a plug-in: ``folder`` class folders, ``medmnist`` npz,
``table`` Parquet, ``webdataset`` tars, ``corpus`` a published one, ``reports`` images and reports,
``captions`` a CSV, ``long_captions`` harvested articles. Nothing here decodes an image: what is
unreadable is found when it is embedded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

# Shapes: N images, M distinct texts, Q questions.

SPLITS = ("train", "val", "test")


class Images(Protocol):
    """Encoded images in a fixed order. Travels by pickle: it says where they are."""

    @property
    def fingerprint(self) -> str:
        """What identifies them and their order: vectors are kept under it."""
        ...

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> list[bytes]:
        """Return encoded files; ``b""`` where there is none."""
        ...


@dataclass(frozen=True, kw_only=True)
class LabelledImages:
    """Images, each of one class."""

    name: str
    images: Images
    labels: np.ndarray
    """Index of the class. int64, [N]."""
    classes: tuple[str, ...]
    splits: np.ndarray
    """train, val or test. str, [N]."""
    ids: list[str]
    """Unique; [N]."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What is not among them, by reason."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Images and the texts they belong to."""

    name: str
    images: Images
    texts: list[str]
    """Distinct; [M]."""
    text_of_image: np.ndarray
    """Index of the text; several images may share one. int64, [N]."""
    about: pa.Table
    """What scores are broken down by, a row per image: caption tokens, licence group, concepts …"""
    ids: list[str]
    """Unique; [N]."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What is not among them, by reason."""


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Questions about images, and their answers."""

    name: str
    images: Images
    image_of: np.ndarray
    """Index of the image. int64, [Q]."""
    questions: list[str]
    answers: list[str]
    kinds: np.ndarray
    """open or closed. str, [Q]."""
    splits: np.ndarray
    """train, val or test. str, [Q]."""
    ids: list[str]
    """Unique; [Q]."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What is not among them, by reason."""
