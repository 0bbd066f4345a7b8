"""Vectors like those of CLIP, made up: what index benchmarks search where no embeddings are.

Images are a common offset and one of many clusters of power-law sizes, themselves around a hundred
topics, with a spectrum that falls slowly; queries like them come from the same clusters. Texts are
another modality: the offset they share with images and one of their own, a weak echo of an image
and noise in all directions. Measured at 0.2 M: the nearest ten images of an image have cosines
0.77 to 0.82, of a text 0.32 to 0.34, and a text needs four times the cells for the same recall, as
is known of CLIP. Ratios transfer to real embeddings, absolute recall need not.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from biovl.index.query import Kind

# Shapes: N vectors, Q queries, D dimensions, T topics, C clusters, B a block.

TOPICS = 100
_BLOCK = 65_536
_DECAY = 0.48
"""Of the spectrum: the i-th direction has the standard deviation ``i ** -0.48``."""
_SIZES = 0.8
"""Of clusters: the i-th has a share of ``i ** -0.8``."""
_SPREAD = 0.6
"""Of an image around its cluster; that of a cluster around its topic is 0.8."""
_OFFSET = 0.55
_ECHO, _NOISE, _SHARED = 0.33, 1.1, 0.8


@dataclass(frozen=True)
class Made:
    """Vectors and what may be asked of them."""

    vectors_ND: np.ndarray
    """Unit length, float16, mapped."""
    cluster_N: np.ndarray
    """Of each; clusters of one topic are neighbours."""
    queries: dict[Kind, np.ndarray]
    """Unit length, float32, shape [Q, D]; none of them is among the vectors."""


def made(folder: Path, count: int, *, dim: int = 512, queries: int = 1_000, seed: int = 0) -> Made:
    """Return vectors, which are kept in a folder and made if it has none."""
    about = {"count": count, "dim": dim, "queries": queries, "seed": seed}
    done = folder / "vectors.json"
    if not done.exists() or json.loads(done.read_bytes()) != about:
        folder.mkdir(parents=True, exist_ok=True)
        _make(folder, count, dim, queries, seed)
        done.write_text(json.dumps(about))
    return Made(
        np.load(folder / "vectors.f16.npy", mmap_mode="r"),
        np.load(folder / "clusters.npy"),
        {"image": np.load(folder / "image.npy"), "text": np.load(folder / "text.npy")},
    )


def _make(folder: Path, count: int, dim: int, queries: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    deviation_D = np.arange(1, dim + 1, dtype=np.float32) ** -_DECAY
    deviation_D /= np.linalg.norm(deviation_D)

    def drawn(rows: int) -> np.ndarray:
        return rng.standard_normal((rows, dim), dtype=np.float32) * deviation_D

    def direction(length: float) -> np.ndarray:
        vector_D = rng.standard_normal(dim, dtype=np.float32)
        return vector_D * np.float32(length / np.linalg.norm(vector_D))

    # No axis is special in embeddings of a model; codes of single dimensions would gain by it.
    rotation_DD, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
    rotation_DD = rotation_DD.astype(np.float32)
    offset_D, text_offset_D = direction(_OFFSET), direction(_OFFSET)
    clusters = max(TOPICS, count // 50 if count < 400_000 else count * 16 // 1_000)
    topics_TD = drawn(TOPICS)
    topic_C = np.sort(rng.integers(0, TOPICS, clusters))
    centres_CD = _mixed(topics_TD[topic_C], drawn(clusters), _SPREAD)
    share_C = rng.permutation(np.arange(1, clusters + 1) ** -_SIZES)
    share_C /= share_C.sum()

    def images(rows: int) -> tuple[np.ndarray, np.ndarray]:
        cluster_B = rng.choice(clusters, rows, p=share_C)
        return cluster_B, _mixed(centres_CD[cluster_B], drawn(rows), _SPREAD)

    vectors_ND = np.lib.format.open_memmap(
        folder / "vectors.f16.npy", "w+", np.float16, (count, dim)
    )
    cluster_N = np.empty(count, np.int32)
    for start in range(0, count, _BLOCK):
        end = min(start + _BLOCK, count)
        cluster_N[start:end], block_BD = images(end - start)
        vectors_ND[start:end] = _unit(block_BD + offset_D) @ rotation_DD
    vectors_ND.flush()
    np.save(folder / "clusters.npy", cluster_N)
    np.save(folder / "image.npy", _unit(images(queries)[1] + offset_D) @ rotation_DD)
    noise_QD = rng.standard_normal((queries, dim), dtype=np.float32) * np.float32(dim**-0.5)
    text_QD = _ECHO * images(queries)[1] + _SHARED * offset_D + text_offset_D + _NOISE * noise_QD
    np.save(folder / "text.npy", _unit(text_QD) @ rotation_DD)


def _mixed(centre_BD: np.ndarray, around_BD: np.ndarray, spread: float) -> np.ndarray:
    """Return points around centres; their deviation stays what it was."""
    return centre_BD * np.float32((1 - spread**2) ** 0.5) + around_BD * np.float32(spread)


def _unit(rows_BD: np.ndarray) -> np.ndarray:
    return rows_BD / np.linalg.norm(rows_BD, axis=1, keepdims=True)
