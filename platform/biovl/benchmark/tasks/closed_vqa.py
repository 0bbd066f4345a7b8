"""Closed visual questions: the option whose caption is nearest to the image.

Images of classes are asked about with the captions of all classes, in two variations; accuracy is
the mean over both. Sets that are questions already are taken as they are, in the authors' captions
where they hold them, as far as they can be asked (``datasets/choices.py``); of several tasks there
is the mean over tasks, too, which BIOMEDICA reports. ``choices`` says how options are ordered and
ties are broken.

Source:
    Lozano et al. 2025 (BIOMEDICA), arXiv:2501.07171, section 16.1. Its captions are not published:
    unless they are given, classes are put into the two templates of BiomedCLIP's table 10.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from biovl.benchmark import bootstrap, choices
from biovl.benchmark.choices import Choices
from biovl.benchmark.data import opened
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.prompts import filled
from biovl.benchmark.selection import only
from biovl.benchmark.tasks import EmbeddedBenchmark, Score, TaskOutcome
from biovl.core.errors import ArtifactError
from biovl.core.plugins import Plugin

UNREADABLE = "the image is unreadable"


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is asked, and in which words."""

    data: str | Plugin
    """Images with classes, or questions: where they are, or their description
    (``{"name": "choices", "path": "…"}``)."""
    captions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By class, as many variations of each; empty puts classes into the templates."""
    templates: tuple[str, ...] = ("this is an image of {}", "{} presented in image")
    """A variation each, with one ``{}`` for the class; of classes without captions."""
    seed: int = 0
    """Of the order of options, and of the intervals."""
    resamples: int = bootstrap.RESAMPLES
    """Of the intervals."""


def build(config: Config) -> "ClosedVqa":
    """Return the task."""
    return ClosedVqa(config)


class ClosedVqa:
    """A task."""

    needs_text = True

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> Choices:
        """Return the questions, with their options in the order they are asked in.

        Raises:
            ArtifactError: If the data is something else, or has no images of test.
            ConfigError: If the captions are not those of its classes.
        """
        found = opened(self.config.data)
        if isinstance(found, LabelledImages):
            given = self.config.captions or {
                name: tuple(filled(template, name) for template in self.config.templates)
                for name in found.classes
            }
            found = choices.of_classes(only(found, "test"), given)
        if not isinstance(found, Choices):
            raise ArtifactError(
                f"{self.config.data} has neither classes nor options: it holds "
                f"{type(found).__name__}"
            )
        return choices.permuted(found, self.config.seed)

    def evaluate(self, data: Choices, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Answer by the nearest option.

        Raises:
            ArtifactError: If no image is readable.
        """
        chosen_VE = choices.answered(data, embedded.image_ND, embedded.text(data.texts))
        asked = chosen_VE[0] >= 0
        if not asked.any():
            raise ArtifactError(f"no image of {data.name} is readable")
        right_VE = (chosen_VE == data.answer_VE).astype(np.float64)
        values = {"accuracy": right_VE.mean(0)}
        if len(right_VE) > 1:
            values |= {f"accuracy/captions {v + 1}": row for v, row in enumerate(right_VE)}
        counted = dict.fromkeys(values, asked)
        groups = set(data.groups)
        for group in sorted(groups - {""}) if len(groups) > 1 else ():
            values[f"accuracy/{group}"] = values["accuracy"]
            counted[f"accuracy/{group}"] = asked & (np.array(data.groups) == group)
        scores = [
            self._score(name, values[name][counted[name]]) for name in values if counted[name].any()
        ]
        of_tasks = self._mean_of_tasks(values["accuracy"], np.array(data.groups), asked)
        scores[1:1] = [] if of_tasks is None else [of_tasks]
        unreadable = int((~asked).sum())
        left_out = {**data.left_out, **({UNREADABLE: unreadable} if unreadable else {})}
        table = _predictions(data, chosen_VE)
        for name, value_E in values.items():
            table = table.append_column(name, pa.array(value_E, mask=~counted[name]))
        return TaskOutcome(
            scores=tuple(scores),
            predictions=table,
            notes={"chance": data.chance, "left_out": left_out, "seed": self.config.seed},
        )

    def _mean_of_tasks(
        self, right_E: np.ndarray, task_E: np.ndarray, asked_E: np.ndarray
    ) -> Score | None:
        """Return the mean over tasks, equally important; None if there is one."""
        names, number_E = np.unique(task_E[asked_E], return_inverse=True)
        if len(names) < 2:
            return None
        found = np.stack([number_E.astype(np.float64), right_E[asked_E]], axis=1)
        known = bootstrap.estimate(
            found, mean_of_tasks, resamples=self.config.resamples, seed=self.config.seed
        )
        return Score(
            name="accuracy_mean_of_tasks",
            value=known.value,
            low=known.low,
            high=known.high,
            count=len(found),
            note=f"{len(names)} tasks",
        )

    def _score(self, name: str, values: np.ndarray) -> Score:
        known = bootstrap.estimate(values, resamples=self.config.resamples, seed=self.config.seed)
        return Score(
            name=name, value=known.value, low=known.low, high=known.high, count=len(values)
        )


def mean_of_tasks(answers_K2: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return the mean over tasks of the mean of their answers. Shape [R].

    Args:
        answers_K2: The task, as a number, and how right the answer is.
        weights_RK: How often each counts. Tasks that none is of do not count.
    """
    task_KT = answers_K2[:, :1] == np.unique(answers_K2[:, 0])
    count_RT = weights_RK @ task_KT
    right_RT = weights_RK @ (task_KT * answers_K2[:, 1:])
    share_RT = right_RT / np.maximum(count_RT, 1)
    mean_R: np.ndarray = share_RT.sum(1) / (count_RT > 0).sum(1)
    return mean_R


def _predictions(data: Choices, chosen_VE: np.ndarray) -> pa.Table:
    """Return the options of each variation as they were asked, the right and the chosen place."""
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
