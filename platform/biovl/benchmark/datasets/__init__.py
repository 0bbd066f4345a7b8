"""Benchmark datasets: images with labels, texts or questions.

Each file reads one format and is a plug-in: ``folder`` (class folders), ``medmnist`` (npz),
``table`` (Parquet), ``webdataset``, ``corpus`` (published by assemble), ``reports`` (images with
reports), ``captions`` (CSV), ``long_captions`` (harvested articles), ``choices`` and ``vqa``
(questions). No image is decoded here: unreadable ones are detected when they are embedded.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

# Shapes: N images, M distinct texts, Q questions.

SPLITS = ("train", "val", "test")


class Images(Protocol):
    """Encoded images in a fixed order. An object holds their location, and is cheap to pickle."""

    @property
    def fingerprint(self) -> str:
        """Hash of the images and their order; part of the key of cached embeddings."""
        ...

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> list[bytes]:
        """Return the encoded files of a range; ``b""`` for a missing image."""
        ...


@dataclass(frozen=True, kw_only=True)
class LabelledImages:
    """Images with one class label each. N images."""

    name: str
    """Name of the dataset in the report."""
    images: Images
    """Encoded images of the dataset."""
    labels: np.ndarray
    """Index of the class of each image. int64, [N]."""
    classes: tuple[str, ...]
    """Names of the classes."""
    splits: np.ndarray
    """Split of each image: train, val or test. str, [N]."""
    ids: list[str]
    """Unique id of each image; [N]."""
    left_out_of: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Number of rows left out, by split and reason."""

    @property
    def left_out(self) -> dict[str, int]:
        """Number of rows left out, by reason."""
        return dict(sum(map(Counter, self.left_out_of.values()), Counter[str]()))


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Images with one or several texts each. N images, M distinct texts."""

    name: str
    """Name of the dataset in the report."""
    images: Images
    """Encoded images of the dataset."""
    texts: list[str]
    """Distinct texts of the dataset; [M]."""
    text_of_image: np.ndarray
    """Index of each image's (first) text; several images may share one. int64, [N]."""
    about: pa.Table
    """Columns by which scores are broken down, such as licence group; one row per image."""
    ids: list[str]
    """Unique id of each image; [N]."""
    further_F2: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Further texts of images with several: index of the image, index of the text. int64."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of rows left out, by reason."""


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Questions about images, and their reference answers. Q questions."""

    name: str
    """Name of the dataset in the report."""
    images: Images
    """Encoded images of the dataset."""
    image_of: np.ndarray
    """Index of each question's image. int64, [Q]."""
    questions: list[str]
    """Text of each question; [Q]."""
    answers: list[str]
    """Reference answer of each question; [Q]."""
    kinds: np.ndarray
    """Kind of each question: open or closed. str, [Q]."""
    splits: np.ndarray
    """Split of each question: train, val or test. str, [Q]."""
    ids: list[str]
    """Unique id of each question; [Q]."""
    image_names: list[str] = field(default_factory=list)
    """Unique name of each image; empty: they are numbered."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of rows left out, by reason."""
