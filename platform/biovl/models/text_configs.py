"""Configurations of transformers text towers: supported types, and known ones for offline use."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from open_clip.hf_configs import arch_dict

from biovl.core.errors import ArtifactError, ConfigError

BERT_BASE: dict[str, Any] = {"model_type": "bert", "vocab_size": 30_522}
"""PubMedBERT's configuration: BERT base with its own vocabulary (transformers' defaults)."""
MODERNBERT_BASE: dict[str, Any] = {"model_type": "modernbert"}

KNOWN: dict[str, dict[str, Any]] = {
    "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract": BERT_BASE,
    "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract-fulltext": BERT_BASE,
    "microsoft/BiomedNLP-PubMedBERT-base-uncased-abstract": BERT_BASE,  # its earlier name
    "microsoft/BiomedNLP-PubMedBERT-base-uncased-abstract-fulltext": BERT_BASE,
    "thomas-sounack/BioClinical-ModernBERT-base": MODERNBERT_BASE,
}
"""The papers' language models, so that they and releases based on them can be built offline."""

_SUPPORTED = ("bert", "modernbert", "roberta", "xlm-roberta")
_HIDDEN_DROPOUTS = ("hidden_dropout_prob", "embedding_dropout", "mlp_dropout")
_ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")

# open_clip 3.3 does not list it.
arch_dict.setdefault(
    "modernbert", {"config_names": {"width": "hidden_size"}, "pooler": "mean_pooler"}
)


def resolve(
    name: str,
    given: Mapping[str, Any],
    *,
    folder: Path | None,
    dropout: float | None,
    context_length: int,
) -> Any:
    """Return the transformers configuration of a text tower.

    Args:
        name: Name of the tower: on the Hugging Face hub, or a folder with ``config.json``.
        given: Settings of the tower; with ``model_type`` they are complete, otherwise they override
            the ``config.json`` of ``folder``, the known configuration of the name, or that on the
            hub.
        folder: The folder from which a model is read, if any.
        dropout: Dropout of hidden states; None keeps the configured value. Attention has none.
        context_length: Tokens that the tower must be able to read.

    Raises:
        ArtifactError: If the configuration is unavailable.
        ConfigError: If the tower is not supported or reads fewer tokens.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        base = {} if "model_type" in given else _base(name, folder)
        # ModernBERT's configuration lists the type of every layer, which must be recomputed for
        # another depth.
        derived = {"layer_types"} if "num_hidden_layers" in given else set()
        plain = {**{key: v for key, v in base.items() if key not in derived}, **given}
        kind = plain.pop("model_type")
        if kind not in _SUPPORTED:
            raise ConfigError(
                f"text towers of type {kind} are not supported: choose from {', '.join(_SUPPORTED)}"
            )
        cls = CONFIG_MAPPING[kind]
        defaults = cls().to_dict()
        shape: Any = cls.from_dict({k: _like(defaults.get(k), v) for k, v in plain.items()})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"the shape of {name} is unavailable ({error}); without network access, set "
            "text_transformer, or text_cfg.hf_model_name to a folder with config.json"
        ) from error
    for key in _ATTENTION_DROPOUTS:
        if hasattr(shape, key):
            setattr(shape, key, 0.0)
    for key in _HIDDEN_DROPOUTS:
        if dropout is not None and hasattr(shape, key):
            setattr(shape, key, dropout)
    longest = getattr(shape, "max_position_embeddings", math.inf)
    if "roberta" in kind:
        longest -= shape.pad_token_id + 1  # its positions start after that of padding
    if context_length > longest:
        raise ConfigError(f"context_length {context_length}: {name} reads {longest} tokens")
    return shape


def _base(name: str, folder: Path | None) -> dict[str, Any]:
    from transformers import AutoConfig

    if folder is not None and (folder / "config.json").is_file():
        beside: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if "model_type" in beside:
            return beside
    if name in KNOWN:
        return KNOWN[name]
    found: dict[str, Any] = AutoConfig.from_pretrained(name, trust_remote_code=False).to_dict()
    return found


def _like(example: Any, value: Any) -> Any:
    """Convert a command-line value, a string, to the type of the value that it replaces."""
    is_number = isinstance(example, (int, float)) and not isinstance(example, bool)
    return type(example)(value) if is_number and isinstance(value, str) else value
