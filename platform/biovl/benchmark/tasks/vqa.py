"""Medical visual question answering as BiomedCLIP and METER do it: a class for every answer.

A module between the model's towers learns from the questions of train (``benchmark/fusion``), and
is asked those of test; val is scored beside, and nothing is chosen by it. An answer is right if it
is the same string, ``answers.normalised``. Whoever never met an answer in training cannot give it:
such questions count as wrong, closed ones too (6 of VQA-RAD's 272, as published). Beside the scores
stands what one gets who looks at nothing and gives each kind its most frequent answer.

Source:
    BiomedCLIP (arXiv:2303.00915), "Medical Visual Question Answering" and figure 4: accuracy of
    open, closed and all questions, and token-level F1. Its tokens are GPT-2's; here they are words
    unless ``f1_tokenizer`` is set.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.benchmark import bootstrap, vqa_answers
from biovl.benchmark.data import opened
from biovl.benchmark.datasets import Questions
from biovl.benchmark.fusion.config import LearningConfig
from biovl.benchmark.tasks import EmbeddedBenchmark, Score, TaskOutcome
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin


@dataclass(frozen=True, kw_only=True)
class Config:
    """Which questions, and how they are learnt."""

    data: str | Plugin
    """Where VQA-RAD or SLAKE is, unpacked; or its description, which says the next three itself."""
    templated: Literal["none", "train", "all"] = "none"
    """Of VQA-RAD: which templated questions are trained on; see ``datasets/vqa.py``."""
    repeated: Literal["drop", "keep"] = "drop"
    """What becomes of questions of train that were met before or stand in test."""
    language: str = "en"
    """Of SLAKE."""
    learning: LearningConfig = field(default_factory=LearningConfig)
    f1_tokenizer: str = ""
    """Whose tokens F1 compares: a folder or name on the hub of a transformers tokenizer (``gpt2``,
    as BiomedCLIP). Empty: words, as SQuAD."""
    resamples: int = bootstrap.RESAMPLES
    """Of the intervals."""
    seed: int = 0
    """Of the intervals; that of the learning is ``learning.seed``."""


@dataclass(frozen=True, kw_only=True)
class VQAAnswers:
    """What a trained model said. JSON-ready."""

    rows: Sequence[int]
    """Numbers of the questions it was asked, those of val and test."""
    predicted: Sequence[str]
    probability: Sequence[float]
    """The model's own, of the answer it gave."""
    classes: Sequence[str]
    """The answers it could give, the most frequent in training first."""
    unreadable: Mapping[str, str]
    """Why an image could not be asked about, by the image's number."""
    losses: Sequence[float]
    """Of each epoch."""


def build(config: Config) -> "Vqa":
    """Return the task."""
    return Vqa(config)


class Vqa:
    """A task whose models are trained first: ``benchmark/vqa_job.py`` does, and calls ``judge``."""

    needs_text = True

    def __init__(self, config: Config) -> None:
        self.config = config
        self.learning = config.learning
        """What marks a task that is trained."""

    def data(self) -> Questions:
        """Return the questions."""
        where, said = self.config.data, ("templated", "repeated", "language")
        settings = {name: getattr(self.config, name) for name in said}
        found = opened(
            Plugin("vqa", {"path": where, **settings}) if isinstance(where, str) else where
        )
        if not isinstance(found, Questions):
            raise ArtifactError(f"{where} has no questions: it holds {type(found).__name__}")
        return found

    def evaluate(self, data: Questions, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Refuse: vectors do not answer questions.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f"vqa trains a module between the towers of {embedded.model}, and does not judge "
            "vectors: a task of this name is learnt first, by benchmark/vqa_job.py"
        )

    def judge(self, data: Questions, answered: VQAAnswers) -> TaskOutcome:
        """Score what a trained model said to the questions of test."""
        rows = np.array(answered.rows, np.int64)
        train = (data.splits == "train") & ~np.isin(data.image_of, _numbers(answered.unreadable))
        tokens = _tokens(self.config.f1_tokenizer)
        table = _judged(data, answered, rows, _majority(data, train), tokens)
        is_test = data.splits[rows] == "test"
        if not is_test.any():
            raise ArtifactError(f"{data.name} has no question of the split test that can be asked")
        tested = table.filter(pa.array(is_test))
        asked_of_val = table.filter(pa.array(data.splits[rows] == "val"))
        scores = [
            self._score(tested, name)
            for name in tested.column_names
            if name in _SCORES and tested[name].null_count < len(tested)
        ]
        notes = {
            "data": getattr(data, "notes", {}),
            "classes": len(answered.classes),
            "majority": _majority(data, train),
            "not_a_class": _not_a_class(tested),
            "unreadable_images": dict(answered.unreadable),
            "questions_of_unreadable": int(
                np.isin(data.image_of, _numbers(answered.unreadable)).sum()
            ),
            "losses": list(answered.losses),
            "val": {name: _mean(asked_of_val, name) for name in _SCORES if len(asked_of_val)},
            "f1_tokens": self.config.f1_tokenizer or "words",
        }
        return TaskOutcome(scores=tuple(scores), predictions=tested, notes=notes)

    def _score(self, table: pa.Table, name: str) -> Score:
        values = table[name].drop_null().to_numpy()
        settings = self.config
        found = bootstrap.estimate(values, resamples=settings.resamples, seed=settings.seed)
        return Score(
            name=name,
            value=found.value,
            low=found.low,
            high=found.high,
            count=len(values),
            note=_SCORES[name],
        )


_SCORES = {
    "accuracy": "the same string",
    "accuracy/open": "",
    "accuracy/closed": "",
    "accuracy/majority": "the most frequent answer of each kind to every question",
    "accuracy/majority_open": "",
    "accuracy/majority_closed": "",
    "token_f1": "",
    "token_f1/open": "",
    "token_f1/closed": "",
}
"""Scores in their order, and what is noted of them; columns of the predictions have their names."""


def _judged(
    data: Questions,
    answered: VQAAnswers,
    rows: np.ndarray,
    majority: Mapping[str, str],
    tokens: Callable[[str], Sequence[Hashable]],
) -> pa.Table:
    """Return a row per question asked; a column for every score, null where it does not count."""
    known = set(answered.classes)
    right = [vqa_answers.normalised(data.answers[row]) for row in rows]
    kinds = data.kinds[rows].tolist()
    said = list(answered.predicted)
    scored = {
        "accuracy": [float(p == a) for p, a in zip(said, right, strict=True)],
        "accuracy/majority": [
            float(majority.get(kind) == a) for kind, a in zip(kinds, right, strict=True)
        ],
        "token_f1": [vqa_answers.token_f1(p, a, tokens) for p, a in zip(said, right, strict=True)],
    }
    columns = {
        "id": pa.array([data.ids[row] for row in rows], pa.string()),
        "kind": pa.array(kinds, pa.string()),
        "question": pa.array([data.questions[row] for row in rows], pa.string()),
        "answer": pa.array(right, pa.string()),
        "predicted": pa.array(said, pa.string()),
        "predicted/probability": pa.array(list(answered.probability), pa.float64()),
        "answer_is_a_class": pa.array([answer in known for answer in right], pa.bool_()),
    }
    for name, values in scored.items():
        columns[name] = pa.array(values, pa.float64())
        for own in ("open", "closed"):
            part = f"{name}_{own}" if "/" in name else f"{name}/{own}"
            of_kind = [v if kind == own else None for v, kind in zip(values, kinds, strict=True)]
            columns[part] = pa.array(of_kind, pa.float64())
    return pa.table(columns)


def _mean(table: pa.Table, name: str) -> float | None:
    found: float | None = pc.mean(table[name]).as_py()
    return found


def _majority(data: Questions, train: np.ndarray) -> dict[str, str]:
    """Return the most frequent answer in training of each kind."""
    return {
        kind: vqa_answers.most_frequent(
            data.answers[row] for row in np.flatnonzero(train & (data.kinds == kind))
        )
        for kind in ("open", "closed")
        if (train & (data.kinds == kind)).any()
    }


def _not_a_class(tested: pa.Table) -> dict[str, int]:
    """Return how many questions of test nobody can answer rightly, by kind."""
    counts = tested.filter(pc.invert(tested["answer_is_a_class"]))["kind"].value_counts()
    return {row["values"]: row["counts"] for row in counts.to_pylist()}


def _numbers(unreadable: Mapping[str, str]) -> list[int]:
    return [int(number) for number in unreadable]


def _tokens(name: str) -> Callable[[str], Sequence[Hashable]]:
    if not name:
        return vqa_answers.words
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"f1_tokenizer {name!r} cannot be had: {error}") from error
    # With a blank, which these tokenizers take for the beginning of a word.
    return lambda answer: list(tokenizer.encode(f" {answer}", add_special_tokens=False))
