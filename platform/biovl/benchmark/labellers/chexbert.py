"""CheXbert, from its published checkpoint: BERT with a head of four states for each finding.

The checkpoint (``chexbert.pth``) is read as tensors only, and its size determines that of BERT.
Reports longer than 512 tokens are cut, as by its authors.

Source:
    Smit et al. 2020 (CheXbert), arXiv:2004.09167; the order of the heads and of their states is
    that of ``constants.py`` and ``models/bert_labeler.py`` in stanfordmlgroup/CheXbert.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from biovl.benchmark.chexpert_findings import NO_FINDING, State
from biovl.benchmark.labellers import LabelledTexts
from biovl.benchmark.text_batches import BatchedTexts
from biovl.core.errors import ArtifactError

HEADS = (
    *("Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema"),
    *("Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion"),
    *("Pleural Other", "Fracture", "Support Devices", NO_FINDING),
)
"""Findings in the order of the checkpoint's heads."""

STATES: tuple[State | None, ...] = (None, "positive", "negative", "uncertain")
"""Meaning of the classes of a head, None for blank; that of ``No Finding`` has the first two."""

_HEAD_WIDTH = 64
"""Width of an attention head in every published BERT."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the labeller: CheXbert."""

    path: str
    """The checkpoint, a local file: ``chexbert.pth``."""
    tokenizer: str = "bert-base-uncased"
    """Local folder of BERT's tokenizer, or its name on the Hugging Face hub, from where it is
    downloaded; no text is sent there."""
    batch: PositiveInt = 32
    """Texts per forward pass."""


def build(config: Config) -> "CheXbert":
    """Return the labeller; nothing is read yet."""
    return CheXbert(config)


@dataclass(frozen=True)
class CheXbert:
    """CheXbert as labeller."""

    config: Config
    findings: tuple[str, ...] = HEADS

    def load(self, device: str) -> Callable[[Sequence[str]], LabelledTexts]:
        """Return the function that labels texts.

        Raises:
            ArtifactError: If the checkpoint or the tokenizer cannot be read, or is another model.
        """
        model = _model(_tensors(self.config.path), self.config.path).eval().to(device)
        length = model.bert.config.max_position_embeddings
        texts = BatchedTexts(_tokenizer(self.config.tokenizer), length, device)

        def label(some: Sequence[str]) -> LabelledTexts:
            # Whitespace is joined as by the authors; the tokenizer ignores it.
            state_NL = texts.outputs(some, model, self.config.batch).astype(np.int64)
            states = [
                {name: state for name, at in zip(HEADS, row, strict=True) if (state := STATES[at])}
                for row in state_NL
            ]
            return LabelledTexts(states=states, truncated=texts.truncated(some))

        return label


class _Heads(nn.Module):
    """BERT and the heads; module names are those of the checkpoint."""

    def __init__(self, bert: Any, width: int) -> None:
        super().__init__()
        self.bert = bert
        heads = [nn.Linear(width, len(STATES)) for _ in HEADS[:-1]]
        self.linear_heads = nn.ModuleList([*heads, nn.Linear(width, 2)])

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the most probable class of each head. Shape [B, 14]."""
        ids, mask = batch["input_ids"], batch["attention_mask"]
        first_BD = self.bert(input_ids=ids, attention_mask=mask)[0][:, 0]
        return torch.stack([head(first_BD).argmax(1) for head in self.linear_heads], dim=1)


def _tensors(path: str) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by name, without the prefix of ``DataParallel``."""
    if not Path(path).is_file():
        raise ArtifactError(f"{path} does not exist: expected CheXbert's checkpoint, chexbert.pth")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise ArtifactError(f"{path} cannot be read as tensors ({reason})") from error
    tensors = checkpoint.get("model_state_dict") if isinstance(checkpoint, Mapping) else None
    if not isinstance(tensors, Mapping):
        raise ArtifactError(f"{path} has no model_state_dict: it is not CheXbert's checkpoint")
    # An index that earlier versions of transformers stored.
    return {
        name.removeprefix("module."): value
        for name, value in tensors.items()
        if not name.endswith("embeddings.position_ids")
    }


def _model(tensors: Mapping[str, Tensor], path: str) -> _Heads:
    from transformers import BertConfig, BertModel

    try:
        words, width = tensors["bert.embeddings.word_embeddings.weight"].shape
        model = _Heads(
            BertModel(
                BertConfig(
                    vocab_size=words,
                    hidden_size=width,
                    num_attention_heads=max(1, width // _HEAD_WIDTH),
                    num_hidden_layers=len({n.split(".")[3] for n in tensors if ".layer." in n}),
                    intermediate_size=len(tensors["bert.encoder.layer.0.intermediate.dense.bias"]),
                    max_position_embeddings=len(
                        tensors["bert.embeddings.position_embeddings.weight"]
                    ),
                )
            ),
            width,
        )
        model.load_state_dict(dict(tensors))
    except (KeyError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ArtifactError(f"{path} is not CheXbert's checkpoint ({reason})") from error
    return model


def _tokenizer(path: str) -> Any:
    from transformers import BertTokenizer

    try:
        return BertTokenizer.from_pretrained(path, local_files_only=Path(path).is_dir())
    except (OSError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise ArtifactError(f"{path} cannot be loaded as BERT's tokenizer ({reason})") from error
