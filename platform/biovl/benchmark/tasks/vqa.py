"""Medical visual question answering as in BiomedCLIP and METER: classification over answers.

A fusion module between the model's towers is trained on the questions of train
(``benchmark/fusion``) and evaluated on test; val is evaluated as well, but not used for selection.
An answer is correct if it is the same string after normalisation (``vqa_answers.normalised``). An
answer that does not occur in training cannot be predicted: such questions count as wrong, closed
ones too (6 of VQA-RAD's 272, as published). For comparison, the accuracy of always giving the most
frequent answer of each kind is reported.

Source:
    BiomedCLIP (arXiv:2303.00915), "Medical Visual Question Answering" and figure 4: accuracy of
    open, closed and all questions, and token-level F1 of GPT-2's tokens.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.benchmark import bootstrap, differences, vqa_answers
from biovl.benchmark.data import open_dataset
from biovl.benchmark.datasets import Questions
from biovl.benchmark.fusion.config import LearningConfig
from biovl.benchmark.tasks import EmbeddedBenchmark, LearningRun, Score, TaskOutcome
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin
from biovl.models.gpt2_tokens import gpt2_tokens


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of visual question answering: questions and training."""

    data: str | Plugin
    """The folder of VQA-RAD or SLAKE, unpacked; or a dataset plug-in. Settings of the plug-in
    ``vqa`` go before the next three; other plug-ins do not know these."""
    templated: Literal["none", "train", "all"] = "none"
    """Which templated questions of VQA-RAD to train on: ``none``, those of ``train``, or ``all``;
    see ``datasets/vqa.py``."""
    repeated: Literal["drop", "keep"] = "drop"
    """Whether to ``drop`` or ``keep`` training and validation questions that repeat an earlier one
    or a test question."""
    language: str = "en"
    """Language of SLAKE's questions, ``en`` or ``zh``."""
    learning: LearningConfig = field(default_factory=LearningConfig)
    """Settings of the fusion module and its training."""
    f1_tokenizer: str = "gpt2"
    """Tokens of token-level F1: ``gpt2``, as in BiomedCLIP, without a download; ``words``, as in
    SQuAD; or another tokenizer, a folder or a name on the Hugging Face hub."""
    resamples: int = bootstrap.RESAMPLES
    """Bootstrap resamples of the confidence intervals."""
    seed: int = 0
    """Seed of the confidence intervals; training uses ``learning.seed``."""


@dataclass(frozen=True, kw_only=True)
class VQAAnswers:
    """Predictions of a trained model. JSON-serialisable."""

    rows: Sequence[int]
    """Indices of the answered questions, of the splits val and test."""
    predicted: Sequence[str]
    """Predicted answer of each question."""
    probability: Sequence[float]
    """The model's probability of the predicted answer."""
    classes: Sequence[str]
    """Answers that can be predicted, the most frequent in training first."""
    unreadable: Mapping[str, str]
    """Reason for each unreadable image, by its index."""
    losses: Sequence[float]
    """Mean training loss of each epoch."""


def build(config: Config) -> "Vqa":
    """Return the task for a configuration."""
    return Vqa(config)


class Vqa:
    """The benchmark task of visual question answering; ``vqa_job.py`` trains the models."""

    needs_text = True
    needs_vectors = False

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> Questions:
        """Return the questions of all splits.

        Raises:
            ConfigError: If the tokenizer for F1 is unavailable; checked here, before training.
        """
        _tokens(self.config.f1_tokenizer)
        where, names = self.config.data, ("templated", "repeated", "language")
        settings = {name: getattr(self.config, name) for name in names}
        asked = Plugin("vqa", {"path": where}) if isinstance(where, str) else where
        if asked.name == "vqa":
            asked = Plugin("vqa", {**settings, **asked.settings})
        elif any(
            settings[field.name] != field.default for field in fields(Config) if field.name in names
        ):
            raise ConfigError(
                f"{', '.join(names)} are settings of the dataset vqa, not of {asked.name}"
            )
        questions = open_dataset(asked)
        if not isinstance(questions, Questions):
            raise ArtifactError(f"{where} has no questions: it holds {type(questions).__name__}")
        return questions

    def learn(self, run: LearningRun, say: Callable[[str], None]) -> None:
        """Train the fusion module, and store its answers to the questions of val and test."""
        # Imported here: it imports this task.
        from biovl.benchmark import vqa_job

        vqa_job.train(run.data, run.model.source, self.config.learning, run.workers, run.place, say)

    def evaluate_learnt(
        self, data: Questions, embedded: EmbeddedBenchmark | None, place: str
    ) -> TaskOutcome:
        """Return the metrics of the answers that ``learn`` stored in ``place``."""
        from biovl.benchmark import vqa_job

        return self.score(data, vqa_job.answers(place))

    def score(self, data: Questions, answered: VQAAnswers) -> TaskOutcome:
        """Return the metrics of a trained model from its answers to the questions.

        Raises:
            ArtifactError: If no question of the split test was answered.
        """
        rows = np.flatnonzero(np.isin(data.splits, ("val", "test")))
        train = (data.splits == "train") & ~np.isin(data.image_of, _numbers(answered.unreadable))
        tokens = _tokens(self.config.f1_tokenizer)
        is_test = data.splits[rows] == "test"
        if not is_test[np.isin(rows, answered.rows)].any():
            raise ArtifactError(f"{data.name} has no question of the split test that can be asked")
        table = _judged(data, answered, rows, _majority(data, train), tokens)
        tested = table.filter(pa.array(is_test))
        validated = table.filter(pa.array(data.splits[rows] == "val"))
        scores = [
            self._score(tested, name)
            for name in tested.column_names
            if name in _SCORES and tested[name].null_count < len(tested)
        ]
        notes: dict[str, Any] = {
            "data": getattr(data, "notes", {}),
            "classes": len(answered.classes),
            "majority": _majority(data, train),
            "not_a_class": _not_a_class(tested),
            "unreadable_images": {
                data.image_names[int(number)] if data.image_names else number: why
                for number, why in answered.unreadable.items()
            },
            "questions_of_unreadable": int(
                np.isin(data.image_of, _numbers(answered.unreadable)).sum()
            ),
            "losses": list(answered.losses),
            "val": {name: _mean(validated, name) for name in _SCORES if len(validated)},
            "f1_tokens": self.config.f1_tokenizer,
            "templated": getattr(data, "notes", {}).get("templated", "none"),
        }
        benchmark = data.name.lower().replace("-", "_")
        notes["protocol"] = differences.notes(benchmark, "vqa", notes)
        return TaskOutcome(scores=tuple(scores), predictions=tested, notes=notes)

    def _score(self, table: pa.Table, name: str) -> Score:
        values, config = table[name].drop_null().to_numpy(), self.config
        return Score.estimated(
            name, values, resamples=config.resamples, seed=config.seed, note=_SCORES[name]
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
"""Metrics in the order of the report, with their remarks; the predictions have columns of these
names."""


def _judged(
    data: Questions,
    answered: VQAAnswers,
    rows: np.ndarray,
    majority: Mapping[str, str],
    tokens: Callable[[str], Sequence[Hashable]],
) -> pa.Table:
    """Return one row per question and a column per metric, null if the question does not count.

    Questions about unreadable images have no prediction, and do not count.
    """
    known = set(answered.classes)
    given = dict(
        zip(answered.rows, zip(answered.predicted, answered.probability, strict=True), strict=True)
    )
    right = [vqa_answers.normalised(data.answers[row]) for row in rows]
    kinds = data.kinds[rows].tolist()
    predicted, probability = zip(*(given.get(row, (None, None)) for row in rows), strict=True)
    compared = list(zip(predicted, right, kinds, strict=True))
    scored = {
        "accuracy": [None if p is None else float(p == a) for p, a, _ in compared],
        "accuracy/majority": [
            None if p is None else float(majority.get(kind) == a) for p, a, kind in compared
        ],
        "token_f1": [
            None if p is None else vqa_answers.token_f1(p, a, tokens) for p, a, _ in compared
        ],
    }
    columns = {
        "id": pa.array([data.ids[row] for row in rows], pa.string()),
        "kind": pa.array(kinds, pa.string()),
        "question": pa.array([data.questions[row] for row in rows], pa.string()),
        "answer": pa.array(right, pa.string()),
        "predicted": pa.array(predicted, pa.string()),
        "predicted/probability": pa.array(probability, pa.float64()),
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
    mean: float | None = pc.mean(table[name]).as_py()
    return mean


def _majority(data: Questions, train: np.ndarray) -> dict[str, str]:
    """Return the most frequent training answer of each kind of question."""
    return {
        kind: vqa_answers.most_frequent(
            data.answers[row] for row in np.flatnonzero(train & (data.kinds == kind))
        )
        for kind in ("open", "closed")
        if (train & (data.kinds == kind)).any()
    }


def _not_a_class(tested: pa.Table) -> dict[str, int]:
    """Return the number of test questions whose answer does not occur in training, by kind."""
    unknown = pc.and_(pc.invert(tested["answer_is_a_class"]), tested["predicted"].is_valid())
    counts = tested.filter(unknown)["kind"].value_counts()
    return {row["values"]: row["counts"] for row in counts.to_pylist()}


def _numbers(unreadable: Mapping[str, str]) -> list[int]:
    return [int(number) for number in unreadable]


def _tokens(name: str) -> Callable[[str], Sequence[Hashable]]:
    if name in _TOKENS:
        return _TOKENS[name]
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"f1_tokenizer: {name!r} is neither {' nor '.join(_TOKENS)}, nor a folder with a "
            f"tokenizer, nor a name on the Hugging Face hub that can be read: {error}"
        ) from error
    return lambda answer: list(tokenizer.encode(answer, add_special_tokens=False))


_TOKENS: Mapping[str, Callable[[str], Sequence[Hashable]]] = {
    "gpt2": gpt2_tokens,
    "words": vqa_answers.words,
}
"""Tokens that need no download, by the value of ``f1_tokenizer``."""
