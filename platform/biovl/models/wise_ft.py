"""WiSE-FT: linear interpolation between the weights of a model and of its fine-tuned version.

Models fine-tuned from the same start lie in one loss basin, so interpolated models are usable. The
coefficient alpha trades the performance on the new data against that on the old:

    theta(alpha) = (1 - alpha) theta_base + alpha theta_tuned

Source: Wortsman et al. 2021, arXiv:2109.01903, section 3. BIOMEDICA (Lozano et al. 2025) merges its
BMCA-CLIP models in this way.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from open_clip.model import CLIPTextCfg, CLIPVisionCfg
from open_clip.transform import PreprocessCfg
from torch import Tensor

from biovl.core import config as configs
from biovl.core.artifacts import Manifest
from biovl.core.errors import ArtifactError
from biovl.core.markdown import table
from biovl.models import weights
from biovl.models.builders import open_clip
from biovl.models.builders.open_clip import Built

_COUNTERS = "num_batches_tracked"
"""Number of updates of batch norm statistics, which does not affect any result."""

_PROBE = "Chest radiograph, PA view (Fig. 2B): H&E, 3.5 µm."

# Fields that may differ between two configurations of the same function of pixels and tokens. The
# context length is that of ``tuned``.
_NOT_ARCHITECTURE = {
    *("patch_dropout", "timm_drop", "timm_drop_path", "timm_model_pretrained"),
    *("context_length", "hf_model_name", "hf_tokenizer_name", "hf_model_pretrained"),
    *("transformers_version", "dtype", "torch_dtype", "architectures", "initializer_range"),
    *("use_cache", "gradient_checkpointing", "id2label", "label2id"),
}


def interpolate(
    base: Mapping[str, Tensor], tuned: Mapping[str, Tensor], alpha: float
) -> dict[str, Tensor]:
    """Return ``(1 - alpha) base + alpha tuned`` for every tensor, in new memory.

    Computed in float64 and rounded once to the wider dtype of the two, so that unchanged tensors
    stay equal, and 0 and 1 give exactly the models. ``logit_scale``, a logarithm, is interpolated
    as such; a ``logit_bias`` that ``base`` lacks is that of ``tuned``. Integer tensors must be
    equal, except the counters of batch norm, which are those of ``tuned``; its running means and
    variances are interpolated, not recomputed on images.

    Raises:
        ArtifactError: If tensors are missing in one model, differ in shape, or are unequal
            integers.
        ValueError: If alpha is not in [0, 1].
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be in [0, 1], got {alpha}")
    # Only SigLIP's loss reads it, with which a model without one may be tuned.
    base = {**{name: tuned[name] for name in ("logit_bias",) if name in tuned}, **base}
    problems = [f"{name}: only in tuned" for name in tuned if name not in base]
    problems += [f"{name}: only in base" for name in base if name not in tuned]
    for name in base.keys() & tuned.keys():
        problems += _misfit(name, base[name], tuned[name])
    if problems:
        raise ArtifactError(
            f"these are not two states of one model, {len(problems)} tensors differ:\n  "
            + "\n  ".join(sorted(problems)[:12])
            + ("\n  …" if len(problems) > 12 else "")
        )
    if alpha in (0, 1):
        return {name: tensor.clone() for name, tensor in (tuned if alpha else base).items()}
    return {name: _between(base[name], tensor, alpha) for name, tensor in tuned.items()}


def _misfit(name: str, base: Tensor, tuned: Tensor) -> list[str]:
    if base.shape != tuned.shape:
        return [f"{name}: {list(base.shape)} in base, {list(tuned.shape)} in tuned"]
    if base.is_floating_point() != tuned.is_floating_point():
        return [f"{name}: {base.dtype} in base, {tuned.dtype} in tuned"]
    is_counter = base.is_floating_point() or name.endswith(_COUNTERS)
    if not is_counter and not torch.equal(base, tuned):
        return [f"{name}: integers that differ"]
    return []


def _between(base: Tensor, tuned: Tensor, alpha: float) -> Tensor:
    if not tuned.is_floating_point():
        return tuned.clone()
    wider = torch.promote_types(base.dtype, tuned.dtype)
    return ((1 - alpha) * base.double() + alpha * tuned.double()).to(wider)


def read_model(folder: Path, source: Path) -> Built:
    """Return the model of a folder, with all tensors loaded from a weight file.

    Args:
        folder: Folder of a model in open_clip's ``local-dir:`` layout.
        source: The folder itself, or a weight file for its architecture.

    Raises:
        ArtifactError: If there is no model, or the weights lack any of its tensors.
    """
    if not (folder / "open_clip_config.json").is_file():
        raise ArtifactError(f"{folder} has no open_clip_config.json: it is not a model")
    built = open_clip.build(open_clip.Config(architecture=str(folder)))
    state = built.model.state_dict()
    # Loading tolerates missing tensors that training can learn; a merge cannot. All tensors that
    # were not loaded must be detected.
    for tensor in state.values():
        if tensor.is_floating_point():
            tensor.fill_(torch.nan)
    weights.load_model(built.model, str(source))
    missing = [
        name
        for name, tensor in state.items()
        if tensor.is_floating_point() and tensor.numel() and bool(tensor.isnan().all())
    ]
    if missing:
        raise ArtifactError(f"{source} lacks {', '.join(missing[:8])}, or they are all NaN")
    return built


def check_same_architecture(base: Built, tuned: Built) -> None:
    """Reject models with different architectures or preprocessing.

    Raises:
        ArtifactError: If they differ; the message lists the differences.
    """
    changes = configs.differences(_architecture(base), _architecture(tuned))
    shared = min(base.tokenizer.context_length, tuned.tokenizer.context_length) - 1
    (base_T,), (tuned_T,) = base.tokenizer.encode([_PROBE]), tuned.tokenizer.encode([_PROBE])
    if base_T[:shared].tolist() != tuned_T[:shared].tolist():
        changes.append(f"tokenizer: {_PROBE!r} gives other ids")
    if changes:
        raise ArtifactError(
            "base and tuned have different architectures; what differs (base -> tuned):\n  "
            + "\n  ".join(changes)
        )


def model_card(manifest: Manifest, sweep: Mapping[str, Any] | None) -> str:
    """Return the ``README.md`` of a merged model.

    Args:
        manifest: Manifest of the merged model.
        sweep: Content of ``sweep.json``; None if nothing was evaluated.
    """
    alpha = manifest.counts["alpha"]
    parts = [
        f"# Merged model, alpha {alpha:g}",
        "Every weight is `(1 - alpha) base + alpha tuned` (WiSE-FT, Wortsman et al. 2021, "
        "arXiv:2109.01903). Architecture, tokenizer and preparation of images are those of tuned.",
        table(
            ["input", "folder", "fingerprint"],
            [[item.name, f"`{item.uri}`", f"`{item.fingerprint}`"] for item in manifest.inputs],
        ),
        "The terms of both models, and of the data that they were trained on, hold for this one.",
        '```python\nopen_clip.create_model_and_transforms("local-dir:FOLDER")\n```',
    ]
    if sweep is not None:
        names = ["image_to_text_recall_at_1", "text_to_image_recall_at_1", "loss"]
        rows = [
            [f"{point['alpha']:g}" + (" (this one)" if point["alpha"] == alpha else "")]
            + [f"{point[name]:.2%}" if "recall" in name else f"{point[name]:.4f}" for name in names]
            for point in sweep["points"]
        ]
        parts += [
            "## Scores",
            f"On the first {sweep['pairs']:,} pairs of the {sweep['split']} split; chosen by: "
            f"{sweep['chosen_by']}. Guessing scores {1 / sweep['pairs']:.2%}. What was chosen on "
            "these pairs must be evaluated on others.",
            table(["alpha", "image→text R@1", "text→image R@1", "loss"], rows),
            "![R@1 against alpha](plots/sweep.png)",
        ]
    return "\n\n".join(parts) + "\n"


def _architecture(built: Built) -> dict[str, Any]:
    cfg = built.model_cfg
    shape = getattr(built.model.text, "config", None)
    # Through open_clip's classes, so that a default and the same value given are equal.
    return {
        "embed_dim": cfg["embed_dim"],
        "quick_gelu": bool(cfg.get("quick_gelu")),
        "vision_cfg": _told(asdict(CLIPVisionCfg(**cfg["vision_cfg"]))),
        "text_cfg": _told(asdict(CLIPTextCfg(**cfg["text_cfg"]))),
        "text_transformer": {} if shape is None else _told(shape.to_dict()),
        "image": asdict(PreprocessCfg(mean=built.mean, std=built.std, **built.preprocess)),
    }


def _told(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in fields.items()
        if name not in _NOT_ARCHITECTURE and not name.startswith("_") and "dropout" not in name
    }
