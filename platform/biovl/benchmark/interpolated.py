"""Interpolations of two models (WiSE-FT), evaluated without being published.

Source: Wortsman et al. 2021, arXiv:2109.01903, section 3; BIOMEDICA merges its models in this way.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from biovl.benchmark.config import SCHEME
from biovl.core.errors import ArtifactError
from biovl.core.workers import Precision
from biovl.models import encoder as ours
from biovl.models.encoder import Encoder
from biovl.models.weight_files import local_copy
from biovl.models.wise_ft import check_same_architecture, interpolate, read_model


def folders(uri: str) -> tuple[str, str]:
    """Return the folders of the two models in the name of an interpolated model."""
    described = json.loads(uri.removeprefix(SCHEME))
    return described["base"], described["tuned"]


def fingerprint(uri: str, of_folders: Sequence[str]) -> str:
    """Return the fingerprint of an interpolated model, from those of its two models."""
    alpha = json.loads(uri.removeprefix(SCHEME))["alpha"]
    key = json.dumps([alpha, *of_folders])
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def load(uri: str, *, device: str, precision: Precision) -> Encoder:
    """Return the interpolated model that a URI describes, ready for inference.

    Raises:
        ArtifactError: If a model does not exist, or their architectures differ.
    """
    described = json.loads(uri.removeprefix(SCHEME))
    with ExitStack() as stack:
        base, tuned = (_there(stack, described[name]) for name in ("base", "tuned"))
        start, end = read_model(base, base), read_model(tuned, tuned)
        settings = json.loads((tuned / ours.CONFIG).read_text(encoding="utf-8"))
    check_same_architecture(start, end)
    # ``interpolate`` returns new tensors: loading would overwrite those it reads.
    between = interpolate(start.model.state_dict(), end.model.state_dict(), described["alpha"])
    end.model.load_state_dict(between)
    return Encoder(
        end, preprocess=settings.get("preprocess_cfg", {}), device=device, precision=precision
    )


def _there(stack: ExitStack, uri: str) -> Path:
    path = stack.enter_context(local_copy(uri))
    if path is None or not (path / ours.CONFIG).is_file():
        raise ArtifactError(f"{uri} has no {ours.CONFIG}: it is not a model, or not finished")
    return path
