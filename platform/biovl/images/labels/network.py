"""The network that classifies one mark as a letter, digit, bracket or none of them.

Its weights are a few hundred kB in this folder; ``benchmarks/train_label_reader.py`` trains them.
"""

import functools
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from biovl.images.labels.marks import SIDE

CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789()αβγδεζ"
"""The classes of a mark; one more class means none of these."""

WEIGHTS = Path(__file__).with_name("reader.npz")

_ALIKE = ("Cc", "Oo0", "Ss", "Vv", "Ww", "Xx", "Zz", "Kk", "Uu", "Pp", "Il1", "Jj", "Yy", "βB")
_NEAR = ("B8β", "D0O", "G6C", "gq9", "S5s", "Z2z", "b6", "iIl1j", "E8", "ae", "αa")


def same_shape(character: str) -> str:
    """Return the characters of the same shape as a character, including itself."""
    return "".join(dict.fromkeys(character + "".join(g for g in _ALIKE if character in g)))


def confusable(character: str) -> str:
    """Return other characters that a character may be confused with, except ``same_shape``."""
    others = "".join(group for group in _NEAR if character in group)
    return "".join(c for c in dict.fromkeys(others) if c not in same_shape(character))


@dataclass(frozen=True)
class Network:
    """A multilayer perceptron with one hidden layer of H units."""

    hidden: np.ndarray
    """Weights of the hidden layer. float32, shape [S * S + 2, H]; the last row is the bias, the one
    before is for the aspect ratio."""
    output: np.ndarray
    """Weights of the output layer. float32, shape [H + 1, characters + 1]."""

    def read(self, patches: np.ndarray, aspects: np.ndarray) -> np.ndarray:
        """Return the probability of each character, and of none, for each mark.

        Args:
            patches: Ink in a square, float32, shape [N, S, S].
            aspects: Width over height of the marks. Shape [N].

        Returns:
            float32, shape [N, characters + 1].
        """
        inputs = np.column_stack(
            [patches.reshape(-1, SIDE * SIDE), np.minimum(aspects, 2), np.ones(len(patches))]
        ).astype(np.float32)
        active = np.maximum(inputs @ self.hidden, 0)
        logits = active @ self.output[:-1] + self.output[-1]
        logits -= logits.max(1, keepdims=True)
        odds = np.exp(logits)
        return np.asarray(odds / odds.sum(1, keepdims=True))


def load(data: bytes) -> Network:
    """Return the network from the bytes of a weight file in half precision."""
    with np.load(io.BytesIO(data), allow_pickle=False) as stored:
        return Network(stored["hidden"].astype(np.float32), stored["output"].astype(np.float32))


def save(network: Network) -> bytes:
    """Return the bytes of a weight file; equal networks give equal bytes."""
    file = io.BytesIO()
    np.savez(
        file, hidden=network.hidden.astype(np.float16), output=network.output.astype(np.float16)
    )
    return file.getvalue()


@functools.cache
def builtin_network() -> Network:
    """Return the network that is part of the package."""
    return load(WEIGHTS.read_bytes())
