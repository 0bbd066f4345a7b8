"""What a trained model said is scored so that anyone can compute it again."""

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from biovl.benchmark.datasets import Questions
from biovl.benchmark.stored_images import ImageFiles
from biovl.benchmark.tasks.vqa import Config, VQAAnswers, build
from biovl.benchmark.vqa_files import PUBLIC
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin
from tests.benchmark.toy_questions import write_vqa_rad


def questions(rows: list[tuple[str, str, str]]) -> Questions:
    """Of split, kind and answer, each about an image of its own."""
    return Questions(
        name="VQA-RAD",
        images=ImageFiles("nowhere", tuple(str(n) for n in range(len(rows))), "x"),
        image_of=np.arange(len(rows)),
        questions=[f"question {n}" for n in range(len(rows))],
        answers=[answer for _, _, answer in rows],
        kinds=np.array([kind for _, kind, _ in rows]),
        splits=np.array([split for split, _, _ in rows]),
        ids=[f"{n}" for n in range(len(rows))],
    )


ROWS = [
    *[("train", "closed", "Yes")] * 3,
    *[("train", "closed", "No"), ("train", "open", "left lung"), ("train", "open", "CT")],
    *[("train", "open", "CT"), ("val", "closed", "no"), ("test", "closed", "yes.")],
    *[("test", "closed", "smaller"), ("test", "open", "Left kidney"), ("test", "open", "ct")],
]


def judged(predicted: list[str], rows=ROWS, unreadable=None, **settings):
    return build(Config(data="nowhere", **settings)).score(
        questions(rows),
        VQAAnswers(
            rows=[7, 8, 9, 10, 11][: len(predicted)],
            predicted=predicted,
            probability=[0.5] * len(predicted),
            classes=["yes", "ct", "left lung", "no"],
            unreadable=unreadable or {},
            losses=[1.0],
        ),
    )


def test_accuracy_and_f1_are_of_all_open_and_closed_questions_of_test():
    outcome = judged(["yes", "yes", "no", "left lung", "left lung"])
    scores = {score.name: (score.value, score.count) for score in outcome.scores}
    assert scores["accuracy"] == (0.25, 4)
    assert scores["accuracy/closed"] == (0.5, 2)
    assert scores["accuracy/open"] == (0.0, 2)
    # One of two tokens in common for the kidney.
    assert scores["token_f1"] == (pytest.approx((1 + 0 + 0.5 + 0) / 4), 4)
    assert scores["token_f1/open"] == (0.25, 2)
    assert outcome.notes["f1_tokens"] == "gpt2"
    # "yes" to the one closed question of val, "no".
    val = outcome.notes["val"]
    assert (val["accuracy"], val["accuracy/closed"], val["accuracy/open"]) == (0.0, 0.0, None)
    assert outcome.scores[0].name == "accuracy"


@pytest.mark.parametrize(("tokens", "f1"), [("gpt2", 0.0), ("words", 2 / 3)])
def test_tokens_of_the_f1_are_those_that_are_set(tokens, f1):
    rows = [*ROWS[:8], ("test", "open", "left lung")]
    # GPT-2 reads "lung" as "l", "ung", and "left lung" as "left", " lung".
    outcome = judged(["no", "lung"], rows, f1_tokenizer=tokens)
    scores = {score.name: score.value for score in outcome.scores}
    assert scores["token_f1"] == pytest.approx(f1)
    assert outcome.notes["f1_tokens"] == tokens


def test_a_tokenizer_that_is_unavailable_is_refused_before_training(tmp_path):
    folder = write_vqa_rad(tmp_path / "rad", images=2)
    with pytest.raises(ConfigError, match=r"f1_tokenizer: .*neither gpt2 nor words"):
        build(Config(data=str(folder), f1_tokenizer=str(tmp_path / "none"))).data()


def test_who_looks_at_nothing_gives_each_kind_its_most_frequent_answer():
    outcome = judged(["no", "no", "no", "no", "no"])
    scores = {score.name: score.value for score in outcome.scores}
    assert outcome.notes["majority"] == {"open": "ct", "closed": "yes"}
    assert scores["accuracy/majority_closed"] == 0.5
    assert scores["accuracy/majority_open"] == 0.5


def test_an_answer_that_training_never_had_counts_as_wrong_and_is_counted():
    outcome = judged(["yes", "yes", "no", "left lung", "ct"])
    assert outcome.notes["not_a_class"] == {"closed": 1, "open": 1}
    rows = {row["answer"]: row for row in outcome.predictions.to_pylist()}
    assert rows["smaller"]["answer_is_a_class"] is False
    assert rows["smaller"]["accuracy"] == 0.0


def test_every_score_is_the_mean_of_its_column_and_sklearns():
    outcome = judged(["yes", "yes", "no", "left lung", "ct"])
    table = outcome.predictions
    for score in outcome.scores:
        assert score.value == pytest.approx(np.mean(table[score.name].drop_null().to_numpy()))
        assert score.low <= score.value <= score.high
    answers, predicted = table["answer"].to_pylist(), table["predicted"].to_pylist()
    assert outcome.scores[0].value == accuracy_score(answers, predicted)
    assert table["id"].to_pylist() == ["8", "9", "10", "11"]


def test_perfect_answers_score_one_where_training_had_them():
    outcome = judged(["no", "yes", "smaller", "left kidney", "ct"])
    assert {s.name: s.value for s in outcome.scores}["accuracy"] == 1.0


def test_questions_of_unreadable_images_are_counted():
    outcome = judged(["no", "yes", "no", "ct"], unreadable={"11": "image does not decode"})
    assert outcome.notes["questions_of_unreadable"] == 1
    assert outcome.scores[0].count == 3
    *_, last = outcome.predictions.to_pylist()
    assert (last["id"], last["predicted"], last["accuracy"]) == ("11", None, None)


def test_settings_of_questions_reach_the_plug_in_and_are_told_as_they_were(tmp_path):
    folder = write_vqa_rad(tmp_path / "rad", images=4)
    rows = [
        {**row, "question_frame": f"Templated {n}?"}
        for n, row in enumerate(json.loads((folder / PUBLIC).read_text()))
    ]
    (folder / PUBLIC).write_text(json.dumps(rows))
    named = Plugin("vqa", {"path": str(folder)})
    data = build(Config(data=named, templated="all")).data()
    assert len(data.questions) == 16
    assert data.notes["templated"] == "all"
    own = Plugin("vqa", {"path": str(folder), "templated": "none"})
    assert len(build(Config(data=own, templated="all")).data().questions) == 8
    other = Plugin("folder", {"path": str(folder)})
    with pytest.raises(ConfigError, match=r"templated.* of the dataset vqa, not of folder"):
        build(Config(data=other, templated="all")).data()


def test_a_set_without_test_questions_is_refused():
    with pytest.raises(ArtifactError, match="split test"):
        judged(["no"])
    with pytest.raises(ArtifactError, match="split test"):
        judged([], [row for row in ROWS if row[0] == "train"])


def test_a_folder_of_questions_is_all_the_task_needs(tmp_path):
    folder = write_vqa_rad(tmp_path / "rad", images=4)
    assert build(Config(data=str(folder))).data().name == "VQA-RAD"
