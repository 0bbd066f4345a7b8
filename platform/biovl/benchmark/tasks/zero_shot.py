"""Zero-shot classification: the class whose prompts are nearest the image.

The embeddings of a class's prompts, one per template, are averaged and normalised again. The
predictions contain the similarity to each class and its probability, the softmax at the model's own
temperature. AUROC for two classes is computed from the difference of their similarities; for more,
it is the mean of the one-vs-rest AUROCs of the probabilities.

Source:
    Radford et al. 2021, arXiv:2103.00020, section 3.1.4 (prompt ensembles); BiomedCLIP
    (arXiv:2303.00915), supplementary table 10 (classes and templates of its five benchmarks).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from scipy.special import softmax

from biovl.benchmark import bootstrap, class_names, classification, classification_plots, selection
from biovl.benchmark import data as opening
from biovl.benchmark.bootstrap import Statistic
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.prompts import PROMPTS, TEMPLATES, fill_template, spellings_of
from biovl.benchmark.tasks import EmbeddedBenchmark, Score, TaskOutcome
from biovl.core.errors import ArtifactError
from biovl.core.plugins import Plugin

# Shapes: N images, n of them readable, C classes, T templates, D embedding.


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of zero-shot classification: images and prompts."""

    data: str | Plugin
    """Images with classes: a folder, or a dataset plug-in with its settings."""
    classes: Mapping[str, str] | tuple[str, ...] = ()
    """Class names for the prompts by the data's names: ``{"lung_n": "normal lung tissue"}``. A list
    is matched with the data's names by spelling, in any order. Empty: the data's own names."""
    templates: tuple[str, ...] = ()
    """Prompt templates with one ``{}`` for the class name; empty: those of ``prompts``, or
    BiomedCLIP's."""
    prompts: str = ""
    """Class names and templates of a published benchmark, by name (``pcam``, ``lc25000_lung`` …);
    empty: none."""
    split: str = "test"
    """Split to evaluate: ``train``, ``val`` or ``test``."""
    resamples: int = bootstrap.RESAMPLES
    """Bootstrap resamples of the confidence intervals."""
    seed: int = 0
    """Seed of the confidence intervals, and of the random choice between equally near classes."""

    def __post_init__(self) -> None:
        if self.prompts and self.prompts not in PROMPTS:
            known = ", ".join(sorted(PROMPTS))
            raise ValueError(f"there are no prompts called {self.prompts!r}; choose from {known}")
        for template in self.templates:
            fill_template(template, "")


def build(config: Config) -> "ZeroShot":
    """Return the task for a configuration."""
    return ZeroShot(config)


class ZeroShot:
    """The benchmark task of zero-shot classification."""

    needs_text = True

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> LabelledImages:
        """Return the labelled images of the split.

        Raises:
            ConfigError: If the class names of the settings do not match those of the data.
        """
        images = selection.only(opening.open_labelled(self.config.data), self.config.split)
        self.classes(images)
        return images

    def classes(self, data: LabelledImages) -> tuple[str, ...]:
        """Return the class names for the prompts, in the order of the data's classes.

        Raises:
            ConfigError: If they do not match the classes of the data; the message lists both.
        """
        names_set, prompts = self.config.classes, self.config.prompts
        known: Mapping[str, tuple[str, ...]]
        if names_set:
            known = (
                dict.fromkeys(names_set, ())
                if isinstance(names_set, Mapping)
                else spellings_of(names_set)
            )
            whose = "the setting classes"
        elif prompts:
            known, whose = PROMPTS[prompts].spellings, f"the prompts {prompts}"
        else:
            return data.classes
        names = class_names.match(data.classes, known, where=data.name, whose=whose)
        return (
            tuple(names_set[name] for name in names)
            if isinstance(names_set, Mapping)
            else tuple(names)
        )

    @property
    def templates(self) -> tuple[str, ...]:
        """The prompt templates that are used."""
        named = PROMPTS[self.config.prompts].templates if self.config.prompts else ()
        return self.config.templates or named or TEMPLATES

    def evaluate(self, data: LabelledImages, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Classify every image, and return the metrics; unreadable images do not count.

        Raises:
            ArtifactError: If no image is readable.
        """
        count, words = len(data.ids), self.classes(data)
        is_read_N = np.array([row not in embedded.unreadable for row in range(count)])
        if not is_read_N.any():
            raise ArtifactError(f"no image of {data.name} is readable")
        class_CD = class_embeddings(embedded, words, self.templates)
        similarity_NC = np.full((count, len(words)), np.nan)
        similarity_NC[is_read_N] = (embedded.image_ND[is_read_N] @ class_CD.T).astype(np.float64)
        probability_NC = softmax(embedded.logit_scale * similarity_NC, axis=1)
        predicted_N = np.full(count, -1)
        rng = np.random.default_rng(self.config.seed)
        predicted_N[is_read_N] = classification.nearest_class(similarity_NC[is_read_N], rng)
        label_n, predicted_n = data.labels[is_read_N], predicted_N[is_read_N]
        estimated = partial(Score.estimated, resamples=self.config.resamples, seed=self.config.seed)
        answers = classification.answers(label_n, predicted_n)
        scores = [
            estimated(name, answers, measure) for name, measure in classification.MEASURES.items()
        ]
        if len(np.unique(label_n)) > 1:
            scored = _scored(label_n, similarity_NC[is_read_N], probability_NC[is_read_N])
            scores.append(estimated("auroc", *scored))
        right_N = predicted_N == data.labels
        predictions = pa.table(
            {
                "id": pa.array(data.ids, pa.string()),
                "label": pa.array(data.labels),
                "class": pa.array([data.classes[label] for label in data.labels], pa.string()),
                "predicted": pa.array(predicted_N, mask=~is_read_N),
                "predicted_class": pa.array(
                    [data.classes[number] if number >= 0 else None for number in predicted_N],
                    pa.string(),
                ),
                "similarity": _lists(similarity_NC, is_read_N),
                "probability": _lists(probability_NC, is_read_N),
                "accuracy": pa.array(right_N.astype(np.float64), mask=~is_read_N),
                "defect": pa.array([embedded.unreadable.get(row) for row in range(count)]),
            }
        )
        plot = classification_plots.confusion_plot(
            classification.confusion(label_n, predicted_n, len(words)),
            data.classes,
            title=f"{data.name}, {embedded.model}",
        )
        return TaskOutcome(
            scores=tuple(scores),
            predictions=predictions,
            plots={"confusion": plot},
            notes={
                "classes": list(words),
                "words": dict(zip(data.classes, words, strict=True)),
                "templates": list(self.templates),
                "unreadable": len(embedded.unreadable),
                "left_out": dict(data.left_out),
                "images_by_class": np.bincount(label_n, minlength=len(words)).tolist(),
                "chance": 1 / len(words),
            },
        )


def class_embeddings(
    embedded: EmbeddedBenchmark, classes: Sequence[str], templates: Sequence[str]
) -> np.ndarray:
    """Return one unit embedding per class, averaged over its prompts. float32, [C, D].

    Prompt embeddings are averaged over the templates and normalised again.
    """
    prompts = [fill_template(template, name) for name in classes for template in templates]
    text_CTD = embedded.text(prompts).reshape(len(classes), len(templates), -1)
    mean_CD = text_CTD.mean(axis=1)
    unit_CD: np.ndarray = mean_CD / np.linalg.norm(mean_CD, axis=1, keepdims=True)
    return unit_CD


def _scored(
    label_n: np.ndarray, similarity_nC: np.ndarray, probability_nC: np.ndarray
) -> tuple[np.ndarray, Statistic]:
    """Return labels with scores, and the AUROC that is computed from them."""
    if similarity_nC.shape[1] == 2:
        score_n = similarity_nC[:, 1] - similarity_nC[:, 0]
        return np.stack([label_n, score_n], axis=1), classification.auroc
    return np.concatenate([label_n[:, None], probability_nC], axis=1), classification.macro_auroc


def _lists(values_NC: np.ndarray, is_read_N: np.ndarray) -> pa.Array:
    rows = [row if read else None for row, read in zip(values_NC.tolist(), is_read_N, strict=True)]
    return pa.array(rows, pa.list_(pa.float64()))
