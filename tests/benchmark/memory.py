"""Images in memory, and models that are perfect, random or constant: for tests of tasks."""

from dataclasses import dataclass

import numpy as np

from biovl.benchmark.tasks import EmbeddedBenchmark


@dataclass(frozen=True)
class MemoryImages:
    files: tuple[bytes, ...]
    fingerprint: str = "memory"

    def __len__(self):
        return len(self.files)

    def read(self, start, stop):
        return list(self.files[start:stop])


def unit(rows):
    rows = np.asarray(rows, np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def random_unit(count, dim=32, seed=0):
    return unit(np.random.default_rng(seed).normal(size=(count, dim)))


def embedded(image_ND, text_of=None, unreadable=()):
    """A model whose text vectors are a dictionary's."""
    image_ND = np.array(image_ND, np.float32)
    image_ND[list(unreadable)] = np.nan

    def text(texts):
        if text_of is None:
            raise AssertionError("no text is asked for")
        return np.stack([text_of[text] for text in texts]).astype(np.float32)

    return EmbeddedBenchmark(
        image_ND=image_ND,
        unreadable=dict.fromkeys(unreadable, "image does not decode"),
        text=text,
        logit_scale=100.0,
        model="memory",
        has_text=text_of is not None,
    )
