"""A trained detector: figures in, boxes out. It runs in ONNX Runtime, without PyTorch.

detector/
  config.json         side of the input in pixels, score threshold, factor on scores
  model.onnx          the network, from pixels to boxes; weights in half precision
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from biovl.core.artifacts import read_manifest, to_json
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.images.boxes import Proposal
from biovl.split.detector.boxes import Maps, decode_boxes
from biovl.split.detector.config import BUILTIN, KIND
from biovl.split.detector.fitting import square

CONFIG, WEIGHTS = "config.json", "model.onnx"

_LEAST_SIDE_PX = 4.0

Run = Callable[[np.ndarray], Maps]
"""Runs a network on an image, RGB uint8, shape [size, size, 3]."""


class Detected(NamedTuple):
    """Result of a detector for one figure."""

    proposals: list[Proposal]
    """Boxes by decreasing score."""
    compound: float
    """Probability that the figure has several panels, 0..1."""


class Detector:
    """Detects panels in figures, without labels or captions."""

    def __init__(self, run: Run, size_px: int, threshold: float, *, trust: float = 1.0) -> None:
        self._run, self._size_px, self.threshold = run, size_px, threshold
        self.trust = trust
        """Factor on its scores, 0..1: reduces the influence of a weak detector."""

    @classmethod
    def load(cls, uri: str) -> "Detector":
        """Load the detector of a published folder, local or in a bucket.

        Raises:
            ArtifactError: If there is no detector, or it is corrupt.
        """
        manifest = read_manifest(uri, KIND)
        folder = Folder(uri)
        data = _read(folder, WEIGHTS)
        if hashlib.sha256(data).hexdigest() != manifest.notes.get("weights_sha256"):
            raise ArtifactError(
                f"{uri}/{WEIGHTS} differs from the published file: corrupt or replaced. Train it "
                "again, or copy the folder again"
            )
        try:
            values = json.loads(_read(folder, CONFIG))
            size_px, threshold = int(values["size_px"]), float(values["threshold"])
            trust = float(values["trust"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(
                f"{uri}/{CONFIG} is not the configuration of a detector: {error!r}"
            ) from error
        return cls(onnx_run(data, f"{uri}/{WEIGHTS}"), size_px, threshold, trust=trust)

    @classmethod
    def builtin(cls) -> "Detector":
        """Load the detector that is part of the package."""
        return cls.load(str(BUILTIN))

    def detect(self, pixels: np.ndarray, *, least: float | None = None) -> Detected:
        """Return the boxes of a figure above the threshold, and whether it is compound.

        Args:
            pixels: RGB, uint8, shape [H, W, 3].
            least: Threshold on the network's raw scores. None uses the detector's threshold, and
                multiplies scores by its confidence factor.
        """
        trust = self.trust if least is None else 1.0
        page = square(pixels, self._size_px)
        maps = self._run(page.pixels_HWC)
        proposals = []
        for score, corners in decode_boxes(maps, self.threshold if least is None else least):
            box = page.in_figure(corners)
            if min(box.width, box.height) >= _LEAST_SIDE_PX:
                # Rounded to whole pixels, so that results do not depend on processors.
                whole = type(box)(*(float(round(v)) for v in (box.x0, box.y0, box.x1, box.y1)))
                proposals.append(Proposal(whole, round(score * trust, 3)))
        return Detected(proposals, maps.compound)

    def propose(self, pixels: np.ndarray) -> list[Proposal]:
        """Return the boxes of a figure above the threshold, by decreasing score."""
        return self.detect(pixels).proposals


def onnx_run(data: bytes, described: str) -> Run:
    """Return a function that runs an ONNX file in one thread.

    Raises:
        ArtifactError: If it is not a detector's file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    # The errors of ONNX Runtime have no class in common.
    except Exception as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise ArtifactError(f"{described} is not an ONNX file of a detector: {reason}") from error

    def run(pixels: np.ndarray) -> Maps:
        score, boxes, compound = session.run(None, {"pixels": pixels[None]})
        return Maps(score[0], boxes[0], float(compound[0]))

    return run


def save(folder: Folder, data: bytes, size_px: int, threshold: float, trust: float) -> str:
    """Write an ONNX file and its configuration; return the SHA-256 of the file."""
    described: dict[str, Any] = {"size_px": size_px, "threshold": threshold, "trust": trust}
    folder.write(WEIGHTS, data)
    folder.write(CONFIG, to_json(described))
    return hashlib.sha256(data).hexdigest()


def _read(folder: Folder, name: str) -> bytes:
    if not folder.exists(name):
        raise ArtifactError(f"{PurePosixPath(folder.described) / name} does not exist")
    return folder.read(name)
