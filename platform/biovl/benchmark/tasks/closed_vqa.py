"""Closed visual question answering: the model chooses the option with the nearest caption.

For images with classes, the options are the captions of all classes in two wordings; accuracy is
the mean over the wordings. Datasets of multiple-choice questions are used as published, with the
authors' captions if present; unusable questions are left out (``datasets/choices.py``). If there
are several tasks, the mean over tasks is reported as well, as in BIOMEDICA. See ``choices`` for the
order of options and for ties.

Source:
    Lozano et al. 2025 (BIOMEDICA), arXiv:2501.07171, section 16.1. Its captions are not published:
    unless captions are set, class names are put into the two templates of BiomedCLIP's table 10.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from biovl.benchmark import bootstrap, choices
from biovl.benchmark.choices import Choices
from biovl.benchmark.data import open_dataset
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.prompts import TEMPLATES, fill_template
from biovl.benchmark.selection import only
from biovl.benchmark.tasks import EmbeddedBenchmark, Score, TaskOutcome
from biovl.core.errors import ArtifactError
from biovl.core.plugins import Plugin

UNREADABLE = "questions about unreadable images"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of closed VQA: data, and captions of the options."""

    data: str | Plugin
    """Images with classes, or multiple-choice questions: a folder, or a dataset plug-in with its
    settings (``{"name": "choices", "path": "…"}``)."""
    captions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Captions by class, the same number of wordings for each; empty: ``templates`` with the class
    names."""
    templates: tuple[str, ...] = TEMPLATES
    """Caption templates with one ``{}`` for the class name, one per wording; used if ``captions``
    is empty."""
    seed: int = 0
    """Seed of the order of options, and of the confidence intervals."""
    resamples: int = bootstrap.RESAMPLES
    """Bootstrap resamples of the confidence intervals."""


def build(config: Config) -> "ClosedVqa":
    """Return the task for a configuration."""
    return ClosedVqa(config)


class ClosedVqa:
    """The benchmark task of closed visual question answering."""

    needs_text = True

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> Choices:
        """Return the questions, with their options in random order.

        Raises:
            ArtifactError: If the data has neither classes nor options, or no images in the split
                test.
            ConfigError: If the captions do not match the classes.
        """
        data = open_dataset(self.config.data)
        if isinstance(data, LabelledImages):
            captions = self.config.captions or {
                name: tuple(fill_template(template, name) for template in self.config.templates)
                for name in data.classes
            }
            data = replace(
                choices.of_classes(only(data, "test"), captions),
                captions="set" if self.config.captions else "templates",
            )
        if not isinstance(data, Choices):
            raise ArtifactError(
                f"{self.config.data} has neither classes nor options: it holds "
                f"{type(data).__name__}"
            )
        return choices.shuffle_options(data, self.config.seed)

    def evaluate(self, data: Choices, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Answer every question with the nearest option, and compute accuracies.

        Raises:
            ArtifactError: If no image is readable.
        """
        chosen_VE = choices.nearest_options(data, embedded.image_ND, embedded.text(data.texts))
        is_answered = chosen_VE[0] >= 0
        if not is_answered.any():
            raise ArtifactError(f"no image of {data.name} is readable")
        right_VE = (chosen_VE == data.answer_VE).astype(np.float64)
        values = {"accuracy": right_VE.mean(0)}
        if len(right_VE) > 1:
            values |= {f"accuracy/captions {v + 1}": row for v, row in enumerate(right_VE)}
        counted = dict.fromkeys(values, is_answered)
        groups = set(data.groups)
        for group in sorted(groups - {""}) if len(groups) > 1 else ():
            values[f"accuracy/{group}"] = values["accuracy"]
            counted[f"accuracy/{group}"] = is_answered & (np.array(data.groups) == group)
        estimated = partial(Score.estimated, resamples=self.config.resamples, seed=self.config.seed)
        scores = [
            estimated(name, values[name][counted[name]]) for name in values if counted[name].any()
        ]
        names, number_E = np.unique(np.array(data.groups)[is_answered], return_inverse=True)
        if len(names) > 1:
            answers_K2 = np.stack([number_E, values["accuracy"][is_answered]], axis=1)
            note = f"{len(names)} tasks"
            of_tasks = estimated("accuracy_mean_of_tasks", answers_K2, mean_of_tasks, note=note)
            scores.insert(1, of_tasks)
        unreadable = int((~is_answered).sum())
        left_out = {**data.left_out, **({UNREADABLE: unreadable} if unreadable else {})}
        table = _predictions(data, chosen_VE)
        for name, value_E in values.items():
            table = table.append_column(name, pa.array(value_E, mask=~counted[name]))
        return TaskOutcome(
            scores=tuple(scores),
            predictions=table,
            notes={
                "chance": data.chance,
                "left_out": left_out,
                "seed": self.config.seed,
                "captions": data.captions,
                "wordings": len(right_VE),
            },
        )


def mean_of_tasks(answers_K2: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return the unweighted mean over tasks of their mean accuracy, per resample. Shape [R].

    Args:
        answers_K2: Task number, and the share of wordings with a correct answer.
        weights_RK: Number of times that each answer is in each resample. Tasks without answers
            do not count.
    """
    task_KT = answers_K2[:, :1] == np.unique(answers_K2[:, 0])
    count_RT = weights_RK @ task_KT
    right_RT = weights_RK @ (task_KT * answers_K2[:, 1:])
    share_RT = right_RT / np.maximum(count_RT, 1)
    mean_R: np.ndarray = share_RT.sum(1) / (count_RT > 0).sum(1)
    return mean_R


def _predictions(data: Choices, chosen_VE: np.ndarray) -> pa.Table:
    """Return the options of each wording in the order used, the right one and the predicted one."""
    columns: dict[str, pa.Array] = {
        "id": pa.array(data.ids, pa.string()),
        "question": pa.array(data.questions, pa.string()),
        "group": pa.array(data.groups, pa.string()),
    }
    for v, chosen_E in enumerate(chosen_VE):
        options = [[data.texts[text] for text in row[row >= 0]] for row in data.option_VEO[v]]
        columns[f"options/{v + 1}"] = pa.array(options, pa.list_(pa.string()))
        columns[f"answer/{v + 1}"] = pa.array(data.answer_VE[v], pa.int64())
        columns[f"predicted/{v + 1}"] = pa.array(chosen_E, pa.int64(), mask=chosen_E < 0)
    return pa.table(columns)
