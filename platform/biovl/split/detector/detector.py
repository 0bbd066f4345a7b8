"""A trained detector: figures in, boxes out; saved to and loaded from a folder.

detector/
  config.json         the design, and the threshold of scores
  model.safetensors   the weights
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torchvision.ops import nms

from biovl.core import config as configs
from biovl.core.artifacts import Folder, read_manifest, to_json
from biovl.core.errors import ArtifactError, ConfigError
from biovl.images.boxes import Proposal
from biovl.split.detector.config import KIND, Design
from biovl.split.detector.fitting import square
from biovl.split.detector.model import Output, PanelNetwork, to_tensor
from biovl.split.detector.targets import boxes_of

CONFIG, WEIGHTS = "config.json", "model.safetensors"
LEAST = 0.05
"""Minimum score of boxes that are returned."""

_MOST = 100
_SAME = 0.5
"""IoU of two boxes above which the one with the lower score is dropped."""
_LEAST_SIDE_PX = 4.0


class Detector:
    """Detects panels in figures, without labels or captions."""

    def __init__(
        self,
        network: PanelNetwork,
        design: Design,
        threshold: float,
        device: torch.device,
        *,
        trust: float = 1.0,
    ) -> None:
        self.network = network.to(device).eval()
        self.design, self.threshold, self.device = design, threshold, device
        self.trust = trust
        """Factor on its scores, 0..1: reduces the influence of a weak detector."""

    @classmethod
    def load(cls, uri: str, device: torch.device | str = "cpu") -> "Detector":
        """Load the detector of a published folder, local or in a bucket.

        Raises:
            ArtifactError: If there is no detector, or its weights are corrupt or of another model.
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
            design = configs.build(Design, values["design"], name=f"{uri}/{CONFIG}")
            network = PanelNetwork(design)
            network.load_state_dict(load_tensors(data))
            threshold, trust = float(values["threshold"]), float(values["trust"])
        except (ConfigError, ValueError, KeyError, TypeError) as error:
            raise ArtifactError(f"{uri}/{CONFIG} is not a detector's: {error}") from error
        except (RuntimeError, SafetensorError) as error:
            reason = str(error).strip().split("\n")[0][:200]
            raise ArtifactError(f"{uri}/{WEIGHTS} does not fit {CONFIG}: {reason}") from error
        return cls(network, design, threshold, torch.device(device), trust=trust)

    @torch.inference_mode()
    def propose(self, pixels: np.ndarray, *, least: float | None = None) -> list[Proposal]:
        """Return the boxes of a figure above the threshold, by decreasing score.

        Args:
            pixels: RGB, uint8, shape [H, W, 3].
            least: Threshold on the network's raw scores. None uses the detector's threshold, and
                multiplies scores by its confidence factor.
        """
        trust = self.trust if least is None else 1.0
        page = square(pixels, self.design.size_px)
        output = self.network(to_tensor([page.pixels_HWC], self.device))
        proposals = []
        for score, corners in decode_boxes(output, self.threshold if least is None else least):
            box = page.in_figure(corners)
            if min(box.width, box.height) >= _LEAST_SIDE_PX:
                # Rounded to whole pixels, so that results do not depend on threads and processors.
                whole = type(box)(*(float(round(v)) for v in (box.x0, box.y0, box.x1, box.y1)))
                proposals.append(Proposal(whole, round(score * trust, 3)))
        return proposals


def decode_boxes(output: Output, least: float) -> list[tuple[float, Sequence[float]]]:
    """Return score and corners of the boxes in a batch's first figure, by decreasing score.

    Corners are in pixels of the input.
    """
    chance = output.centre_BHW[:1].float().sigmoid()
    # A cell is a centre if it is a local maximum.
    highest = F.max_pool2d(chance[:, None], 3, stride=1, padding=1)[:, 0]
    score = torch.where(chance == highest, chance, 0.0).flatten().cpu()
    best = score.topk(min(_MOST, len(score)))
    is_kept = best.values >= max(least, LEAST)
    corners_4M = boxes_of(output.sides_B4HW[:1].float())[0].flatten(1).cpu()
    corners = corners_4M[:, best.indices[is_kept]].T.contiguous()
    surest = nms(corners, best.values[is_kept], _SAME)
    values = best.values[is_kept][surest].tolist()
    return list(zip(values, corners[surest].tolist(), strict=True))


def save(
    folder: Folder, network: PanelNetwork, design: Design, threshold: float, trust: float
) -> str:
    """Write weights and configuration; return the SHA-256 of the weights."""
    state = {name: t.detach().cpu().contiguous() for name, t in network.state_dict().items()}
    data = save_tensors(state)
    described: dict[str, Any] = {
        "design": configs.to_plain(design),
        "threshold": threshold,
        "trust": trust,
    }
    folder.write(WEIGHTS, data)
    folder.write(CONFIG, to_json(described))
    return hashlib.sha256(data).hexdigest()


def _read(folder: Folder, name: str) -> bytes:
    if not folder.exists(name):
        raise ArtifactError(f"{PurePosixPath(folder.described) / name} does not exist")
    return folder.read(name)
