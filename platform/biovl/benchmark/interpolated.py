"""Models between two (WiSE-FT), judged like any others without being published.

Source: Wortsman et al. 2021, arXiv:2109.01903, section 3; BIOMEDICA merges its models so.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from biovl.core.errors import ArtifactError
from biovl.models import encoder as ours
from biovl.models.encoder import Encoder, Precision
from biovl.models.weight_files import local_copy
from biovl.models.wise_ft import check_same_architecture, interpolate, read_model

SCHEME = "wise-ft:"
"""How the name of such a model begins: JSON follows."""


@dataclass(frozen=True, kw_only=True)
class WiseFt:
    """Two models, and where between them to look."""

    base: str
    """What tuning began from: a folder in open_clip's layout, local or ``s3://``."""
    tuned: str
    """What it came to."""
    alphas: tuple[float, ...] = tuple(step / 10 for step in range(11))
    """0 is base, 1 is tuned."""

    def __post_init__(self) -> None:
        if not self.alphas or not all(0 <= alpha <= 1 for alpha in self.alphas):
            raise ValueError(f"alphas must be in [0, 1], one at least, got {self.alphas}")

    def models(self) -> dict[str, str]:
        """Return the models by the name the table gives them."""
        return {
            name_of(alpha): SCHEME
            + json.dumps({"alpha": alpha, "base": self.base, "tuned": self.tuned})
            for alpha in sorted(set(self.alphas))
        }


def name_of(alpha: float) -> str:
    """Return what the table calls the model at a point."""
    return f"alpha-{alpha:g}"


def folders(uri: str) -> tuple[str, str]:
    """Return the two folders of a name."""
    described = json.loads(uri.removeprefix(SCHEME))
    return described["base"], described["tuned"]


def fingerprint(uri: str, of_folders: Sequence[str]) -> str:
    """Return what identifies a model between two of known fingerprints."""
    alpha = json.loads(uri.removeprefix(SCHEME))["alpha"]
    said = json.dumps([alpha, *of_folders])
    return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()


def load(uri: str, *, device: str, precision: Precision) -> Encoder:
    """Return the model at its point.

    Raises:
        ArtifactError: If there are no two models, or they are not of one architecture.
    """
    described = json.loads(uri.removeprefix(SCHEME))
    with ExitStack() as stack:
        base, tuned = (_there(stack, described[name]) for name in ("base", "tuned"))
        start, end = read_model(base, base), read_model(tuned, tuned)
        seen = json.loads((tuned / ours.CONFIG).read_text(encoding="utf-8"))
    check_same_architecture(start, end)
    # A copy: it is loaded into the very tensors that it is made from.
    between = interpolate(start.model.state_dict(), end.model.state_dict(), described["alpha"])
    end.model.load_state_dict(between)
    return Encoder(
        end, preprocess=seen.get("preprocess_cfg", {}), device=device, precision=precision
    )


def _there(stack: ExitStack, uri: str) -> Path:
    path = stack.enter_context(local_copy(uri))
    if path is None or not (path / ours.CONFIG).is_file():
        raise ArtifactError(f"{uri} has no {ours.CONFIG}: it is not a model, or not finished")
    return path
