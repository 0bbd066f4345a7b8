"""A multi-label text classifier of transformers, such as one trained on CheXbert's labels.

A label is positive if its sigmoid is at least the threshold; there are no uncertain findings. The
labels are those of ``id2label`` in the model's configuration. Code in the model's folder is not
executed, and only tensors are loaded from weight files.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from biovl.benchmark.chexpert_findings import State
from biovl.benchmark.labellers import LabelledTexts
from biovl.benchmark.text_batches import BatchedTexts
from biovl.core.errors import ArtifactError, ConfigError


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the labeller: a text classifier."""

    path: str
    """Local folder of the classifier and its tokenizer, or its name on the Hugging Face hub, from
    where it is downloaded; no text is sent there."""
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Probability from which a label is positive."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Finding of labels with other names: ``{"LABEL_3": "Edema"}``."""
    batch: PositiveInt = 32
    """Texts per forward pass."""


def build(config: Config) -> "Classifier":
    """Return the labeller; nothing is read yet."""
    return Classifier(config)


@dataclass(frozen=True)
class Classifier:
    """A text classifier as labeller."""

    config: Config

    @cached_property
    def findings(self) -> tuple[str, ...]:
        """Findings by label, in the order of the model's outputs.

        Raises:
            ArtifactError: If the model's configuration cannot be read.
            ConfigError: If its labels exclude each other, or ``names`` has a label it lacks.
        """
        from transformers import AutoConfig

        known: Any = _loaded(AutoConfig.from_pretrained, self.config.path)
        labels = [str(known.id2label[number]) for number in range(known.num_labels)]
        if known.problem_type not in (None, "multi_label_classification"):
            raise ConfigError(
                f"{self.config.path} is trained for {known.problem_type}: one of its labels "
                f"({labels}) excludes the others. Expected multi_label_classification"
            )
        missing = sorted(set(self.config.names) - set(labels))
        if missing:
            raise ConfigError(
                f"names: {missing} are not labels of {self.config.path}; choose from {labels}"
            )
        return tuple(self.config.names.get(label, label) for label in labels)

    def load(self, device: str) -> Callable[[Sequence[str]], LabelledTexts]:
        """Return the function that labels texts.

        Raises:
            ArtifactError: If the weights or the tokenizer cannot be read, or the weights have no
                classification head.
        """
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        model, loading = _loaded(
            AutoModelForSequenceClassification.from_pretrained,
            self.config.path,
            output_loading_info=True,
        )
        missing = sorted(name for name in loading["missing_keys"] if "position_ids" not in name)
        if missing:
            raise ArtifactError(
                f"{self.config.path} lacks {len(missing)} tensors of a classifier, such as "
                f"{missing[0]}: it is not trained to classify"
            )
        tokenizer = _loaded(AutoTokenizer.from_pretrained, self.config.path)
        model.eval().to(device)
        # Models of RoBERTa's kind have two positions more than tokens.
        positions = getattr(model.config, "max_position_embeddings", None) or 512
        if model.config.model_type in ("roberta", "xlm-roberta", "camembert", "longformer"):
            positions -= 2
        texts = BatchedTexts(tokenizer, min(tokenizer.model_max_length, positions), device)
        findings, threshold = self.findings, self.config.threshold

        def label(some: Sequence[str]) -> LabelledTexts:
            logits_NL = texts.outputs(some, lambda b: model(**b).logits, self.config.batch)
            # The sigmoid is at least t where the logit is at least log(t / (1 - t)).
            positive_NL = logits_NL >= np.log(threshold / (1 - threshold))
            states: list[dict[str, State]] = [
                {
                    name: ("positive" if yes else "negative")
                    for name, yes in zip(findings, row, strict=True)
                }
                for row in positive_NL
            ]
            return LabelledTexts(states=states, truncated=texts.truncated(some))

        return label


def _loaded(load: Callable[..., Any], path: str, **more: Any) -> Any:
    """Load a part of a model from a folder or the hub.

    Raises:
        ArtifactError: If it cannot be loaded.
    """
    try:
        return load(path, trust_remote_code=False, local_files_only=Path(path).is_dir(), **more)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise ArtifactError(f"{path} cannot be loaded as a text classifier ({reason})") from error
