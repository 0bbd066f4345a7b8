"""Stands for a model whose vectors are known."""

from collections.abc import Mapping, Sequence

import numpy as np

from biovl.benchmark.tasks import EmbeddedBenchmark


class Listed:
    """So many images that nobody reads."""

    fingerprint = "listed"

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def read(self, start: int, stop: int) -> list[bytes]:
        raise AssertionError("a task does not read images")


def unit(rows: np.ndarray) -> np.ndarray:
    made: np.ndarray = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return made


def random_rows(count: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=(count, dim)))


def embedded(
    image_ND: np.ndarray,
    texts: Mapping[str, np.ndarray],
    *,
    unreadable: Mapping[int, str] | None = None,
    logit_scale: float = 10.0,
) -> EmbeddedBenchmark:
    """Return a model's vectors, those of texts by the text."""
    rows = np.array(image_ND, np.float32)
    for row in unreadable or {}:
        rows[row] = np.nan

    def text(wanted: Sequence[str]) -> np.ndarray:
        return np.stack([texts[one] for one in wanted]).astype(np.float32)

    return EmbeddedBenchmark(
        image_ND=rows,
        unreadable=unreadable or {},
        text=text,
        logit_scale=logit_scale,
        model="known",
        has_text=True,
    )
