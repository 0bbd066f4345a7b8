"""Panel labels read by RapidOCR (PP-OCR models, Apache-2.0): an alternative, 40 times slower.

``pip install rapidocr onnxruntime`` includes the models; nothing is downloaded at runtime. It reads
words where the default reader of ``labels`` reads letters, and misses most single letters on
photographs.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from biovl.core.errors import ConfigError
from biovl.images.boxes import Box
from biovl.images.labels.reading import Label

_SETTINGS = {
    "Global.log_level": "critical",
    "Global.text_score": 0.2,
    # Single letters are below the default thresholds of the text line detector.
    "Det.box_thresh": 0.3,
    "Det.thresh": 0.2,
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
}
_LABEL = re.compile(r"^[(\[]?\s*([A-Za-zα-ω]{1,4}|[A-Za-z]?\d{1,2}|[A-Za-z]')\s*[)\].:]?$")
_FIRST = re.compile(r"^[(\[]?\s*([A-Za-z])\s*[)\].:]\s")


class RapidOcrReader:
    """Reads labels like ``read_labels``, with the models of RapidOCR."""

    def __init__(self) -> None:
        """Load the models.

        Raises:
            ConfigError: If RapidOCR or ONNX Runtime is not installed.
        """
        try:
            from rapidocr import RapidOCR  # an optional dependency
        except ImportError as error:
            raise ConfigError(
                "labels cannot be read with RapidOCR: it is not installed; "
                "run: pip install rapidocr onnxruntime"
            ) from error
        self._engine: Any = RapidOCR(params=_SETTINGS)

    def __call__(self, pixels: np.ndarray, *, expected: Sequence[str] = ()) -> list[Label]:
        """Return the printed labels of a figure.

        Args:
            pixels: RGB, uint8, shape [H, W, 3].
            expected: Labels in the caption: only these are returned, the most confident of each, in
                the
                caption's case. Without them, all text that looks like a label.
        """
        # RapidOCR expects BGR, like OpenCV.
        result = self._engine(np.ascontiguousarray(pixels[:, :, ::-1]), use_cls=False)
        if result.boxes is None:
            return []
        found = [
            Label(text, _around(corners), float(score))
            for corners, words, score in zip(result.boxes, result.txts, result.scores, strict=True)
            if (text := label_in(words))
        ]
        return match_expected(found, expected) if expected else found


def label_in(words: str) -> str | None:
    """Return the label at the start of a line of text: ``(A) Control`` gives ``A``; else None."""
    match = _LABEL.match(words.strip()) or _FIRST.match(words.strip())
    return match[1] if match else None


def match_expected(found: Sequence[Label], expected: Sequence[str]) -> list[Label]:
    """Return the most confident reading of each expected label, in its order and case."""
    best = []
    for text in dict.fromkeys(expected):
        same = [label for label in found if label.text == text]
        same = same or [label for label in found if label.text.lower() == text.lower()]
        if same:
            surest = max(same, key=lambda label: label.score)
            best.append(Label(text, surest.box, surest.score))
    return best


def _around(corners: np.ndarray) -> Box:
    """Return the bounding box of four corners. Shape [4, 2]."""
    (x0, y0), (x1, y1) = np.min(corners, axis=0), np.max(corners, axis=0)
    return Box(float(x0), float(y0), float(x1), float(y1))
