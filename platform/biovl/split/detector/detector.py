"""A trained detector: figures in, boxes out; saved as a folder, and read from one.

detector/
  config.json         the design, and the score from which on a box is believed
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
"""Boxes of lower scores are not given at all."""

_MOST = 100
_SAME = 0.5
"""Shared area over both from which on the less sure of two boxes is dropped."""
_LEAST_SIDE_PX = 4.0


class Detector:
    """Finds panels in figures, without labels or captions."""

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
        """0..1: what its scores are multiplied by, so that a weak detector has little to say."""

    @classmethod
    def load(cls, uri: str, device: torch.device | str = "cpu") -> "Detector":
        """Return the detector of a published folder, local or in a bucket.

        Raises:
            ArtifactError: If there is none, its weights are damaged, or they are another's.
        """
        manifest = read_manifest(uri, KIND)
        folder = Folder(uri)
        data = _read(folder, WEIGHTS)
        if hashlib.sha256(data).hexdigest() != manifest.notes.get("weights_sha256"):
            raise ArtifactError(
                f"{uri}/{WEIGHTS} is not what was published: damaged, or exchanged. Train it "
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
        """Return the boxes of a figure that are believed, the surest first.

        Args:
            pixels: RGB, uint8, shape [H, W, 3].
            least: Score from which on, for scores as the network gives them. None takes the
                detector's own threshold, and multiplies by its trust.
        """
        trust = self.trust if least is None else 1.0
        page = square(pixels, self.design.size_px)
        output = self.network(to_tensor([page.pixels_HWC], self.device))
        proposals = []
        for score, corners in decoded(output, self.threshold if least is None else least):
            box = page.in_figure(corners)
            if min(box.width, box.height) >= _LEAST_SIDE_PX:
                # In whole pixels, so that threads and processors agree.
                whole = type(box)(*(float(round(v)) for v in (box.x0, box.y0, box.x1, box.y1)))
                proposals.append(Proposal(whole, round(score * trust, 3)))
        return proposals


def decoded(output: Output, least: float) -> list[tuple[float, Sequence[float]]]:
    """Return score and corners of the boxes in the first figure of a batch, the surest first.

    Corners are in pixels of the input.
    """
    chance = output.centre_BHW[:1].float().sigmoid()
    # A cell is a centre where none around it is surer.
    highest = F.max_pool2d(chance[:, None], 3, stride=1, padding=1)[:, 0]
    score = torch.where(chance == highest, chance, 0.0).flatten().cpu()
    best = score.topk(min(_MOST, len(score)))
    kept = best.values >= max(least, LEAST)
    corners_4M = boxes_of(output.sides_B4HW[:1].float())[0].flatten(1).cpu()
    corners = corners_4M[:, best.indices[kept]].T.contiguous()
    surest = nms(corners, best.values[kept], _SAME)
    values = best.values[kept][surest].tolist()
    return list(zip(values, corners[surest].tolist(), strict=True))


def save(
    folder: Folder, network: PanelNetwork, design: Design, threshold: float, trust: float
) -> str:
    """Write weights and configuration; return the weights' SHA-256."""
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
        raise ArtifactError(f"{PurePosixPath(folder.described) / name} is not there")
    return folder.read(name)
