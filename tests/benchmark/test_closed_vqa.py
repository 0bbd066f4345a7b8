"""Closed questions: what is asked, what cannot be, and what perfect and random models score."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biovl.benchmark import benchmarks, choices
from biovl.benchmark import data as opening
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.tasks import closed_vqa
from biovl.core import config as configs
from biovl.core import plugins
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin
from tests.benchmark.memory import MemoryImages, embedded, random_unit

CAPTIONS = {"cat": ("a cat", "shows cat"), "dog": ("a dog", "shows dog"), "cow": ("cow", "kine")}
VECTORS = {
    text: np.eye(3)[number] for number, pair in enumerate(CAPTIONS.values()) for text in pair
}


def pets(images=300, seed=0):
    return LabelledImages(
        name="pets",
        images=MemoryImages((b"",) * images),
        labels=np.random.default_rng(seed).integers(0, 3, images),
        classes=tuple(CAPTIONS),
        splits=np.array(["test"] * images),
        ids=[f"i{number}" for number in range(images)],
    )


def asked(data):
    return choices.shuffle_options(choices.of_classes(data, CAPTIONS), 0)


def judged(data, model):
    return closed_vqa.build(closed_vqa.Config(data="")).evaluate(asked(data), model)


def test_each_image_is_asked_about_in_both_wordings() -> None:
    data = pets(40)
    found = asked(data)
    assert found.option_VEO.shape == (2, 40, 3)
    for v, e in np.ndindex(2, 40):
        options = [found.texts[number] for number in found.option_VEO[v, e]]
        assert sorted(options) == sorted(pair[v] for pair in CAPTIONS.values())
        assert options[found.answer_VE[v, e]] == CAPTIONS[data.classes[data.labels[e]]][v]
    assert found.chance == pytest.approx(1 / 3)


def test_the_order_of_options_is_drawn_from_the_seed_and_the_id_alone() -> None:
    plain = choices.of_classes(pets(600), CAPTIONS)
    one, again, other = (choices.shuffle_options(plain, seed) for seed in (0, 0, 1))
    assert one.option_VEO.tolist() == again.option_VEO.tolist() != other.option_VEO.tolist()
    assert np.bincount(one.answer_VE[0]) / 600 == pytest.approx(np.full(3, 1 / 3), abs=0.06)
    few = choices.shuffle_options(choices.of_classes(pets(5), CAPTIONS), 0)
    assert few.option_VEO.tolist() == one.option_VEO[:, :5].tolist()


def test_a_perfect_model_scores_one_and_a_constant_one_what_guessing_does() -> None:
    data = pets()
    perfect = judged(data, embedded(np.eye(3)[data.labels], VECTORS))
    assert {(s.name, s.value, s.low, s.high) for s in perfect.scores} == {
        ("accuracy", 1, 1, 1),
        ("accuracy/captions 1", 1, 1, 1),
        ("accuracy/captions 2", 1, 1, 1),
    }
    same = random_unit(1)[0]
    constant = judged(data, embedded(np.tile(same, (300, 1)), dict.fromkeys(VECTORS, same)))
    assert constant.scores[0].low < 1 / 3 < constant.scores[0].high


def test_a_random_model_scores_chance_within_its_interval() -> None:
    texts = dict(zip(VECTORS, random_unit(6, seed=1), strict=True))
    found = judged(pets(), embedded(random_unit(300), texts)).scores[0]
    assert found.low < 1 / 3 < found.high


def test_accuracy_is_the_mean_of_both_wordings_and_follows_from_the_predictions() -> None:
    data = pets(60)
    texts = dict(zip(VECTORS, random_unit(6, seed=1), strict=True))
    outcome = judged(data, embedded(random_unit(60), texts, unreadable=[7, 9]))
    table = outcome.predictions
    assert table["id"].to_pylist() == data.ids
    columns = table.drop_null().to_pydict()
    right = [np.equal(columns[f"answer/{v}"], columns[f"predicted/{v}"]) for v in (1, 2)]
    overall, one, two = outcome.scores
    assert (one.value, two.value) == pytest.approx((np.mean(right[0]), np.mean(right[1])))
    assert overall.value == pytest.approx((one.value + two.value) / 2)
    assert overall.count == 58
    assert outcome.notes["left_out"] == {closed_vqa.UNREADABLE: 2}
    assert np.mean(columns["accuracy"]) == pytest.approx(overall.value)
    assert table["accuracy"][7].as_py() is None


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        ({"cat": ("a",), "dog": ("b",)}, r"data: \['cow'\]"),
        ({**CAPTIONS, "eel": ("x", "y")}, r"captions: \['eel'\]"),
        ({**CAPTIONS, "cow": ("only one",)}, "'cat': 2.*'cow': 1"),
        ({**CAPTIONS, "cow": ("a cat", "kine")}, "'a cat'"),
        ({**CAPTIONS, "cow": ("cow", " ")}, "' ?'.*2"),
    ],
)
def test_captions_must_tell_the_classes_apart(captions: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choices.of_classes(pets(3), captions)


def test_captions_are_found_by_the_name_of_the_class_however_it_is_spelled() -> None:
    captions = {"C-O_W": ("cow", "kine"), "Dog": ("a dog", "shows dog"), "CAT": ("a cat", "shows")}
    data = pets(20)
    found = choices.of_classes(data, captions)
    right = [found.texts[found.option_VEO[0, e, found.answer_VE[0, e]]] for e in range(20)]
    first = {"cat": "a cat", "dog": "a dog", "cow": "cow"}
    assert right == [first[data.classes[label]] for label in data.labels]


ROWS = [
    {"image": b"a", "options": ["x", "y"], "answer": 1, "task": "stain"},
    {"image": b"b", "options": ["x"], "answer": 0, "task": "stain"},
    {"image": b"c", "options": ["x", "y"], "answer": 2, "task": "stain"},
    {"image": b"d", "options": ["x", "y"], "answer": -1, "task": "stain"},
    {"image": b"e", "options": ["x", " x"], "answer": 0, "task": "stain"},
    {"image": b"f", "options": ["x", ""], "answer": 0, "task": "stain"},
    {"image": b"g", "options": ["x", "y"], "answer": 0, "task": "unknown"},
    {"image": b"a", "options": ["y", "x"], "answer": 0, "task": "stain"},
    {"image": b"h", "options": ["x", "y"], "answer": 0, "task": "stain"},
    {"image": b"h", "options": ["x", "y"], "answer": 1, "task": "stain"},
    {"image": b"i", "options": None, "answer": None, "task": "domain"},
    {"image": b"j", "options": ["p", "q", "r"], "answer": 2, "task": "domain"},
]


def write(folder, rows):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "test-00000.parquet")
    return str(folder)


def test_what_cannot_be_asked_is_left_out_by_reason(tmp_path) -> None:
    path = write(tmp_path / "set", ROWS)
    task = closed_vqa.build(
        closed_vqa.Config(data=Plugin("choices", {"path": path, "task": "task"}))
    )
    data = task.data()
    assert data.ids == ["0", "11"]
    assert data.left_out == {
        choices.ONE_OPTION: 2,
        choices.OUT_OF_RANGE: 2,
        choices.SAME_OPTION: 1,
        choices.EMPTY_OPTION: 1,
        choices.UNKNOWN_TASK: 1,
        choices.REPEATED: 1,
        choices.CONTRADICTORY: 2,
    }
    assert data.images.read(0, 2) == [b"a", b"j"]
    right = [data.texts[data.option_VEO[0, e, data.answer_VE[0, e]]] for e in (0, 1)]
    assert right == ["y", "r"]
    vectors = dict(zip("xypqr", np.eye(5), strict=True))
    outcome = task.evaluate(data, embedded([vectors["y"], vectors["q"]], vectors))
    assert [(s.name, s.value) for s in outcome.scores] == [
        ("accuracy", 0.5),
        ("accuracy_mean_of_tasks", 0.5),
        ("accuracy/domain", 0),
        ("accuracy/stain", 1),
    ]
    assert outcome.notes["chance"] == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_a_set_without_a_question_that_can_be_asked_is_refused(tmp_path) -> None:
    path = write(tmp_path / "set", ROWS[1:4])
    with pytest.raises(ArtifactError, match=choices.ONE_OPTION):
        closed_vqa.build(closed_vqa.Config(data=Plugin("choices", {"path": path}))).data()


def test_questions_inside_structs_and_answers_in_words_are_read(tmp_path) -> None:
    nested = [
        {"image": {"bytes": b"a"}, "questions": {"stain": {"options": ["x", "y"], "is": "y"}}},
        {"image": {"bytes": b"b"}, "questions": {"stain": {"options": ["x", "y"], "is": "z"}}},
    ]
    settings = {
        "path": write(tmp_path / "set", nested),
        "options": "questions.stain.options",
        "answer": "questions.stain.is",
    }
    data = closed_vqa.build(closed_vqa.Config(data=Plugin("choices", settings))).data()
    assert data.left_out == {choices.OUT_OF_RANGE: 1}
    assert data.images.read(0, 1) == [b"a"]
    with pytest.raises(ArtifactError, match=r"dye\.is.*questions"):
        wrong = {**settings, "answer": "questions.dye.is"}
        closed_vqa.build(closed_vqa.Config(data=Plugin("choices", wrong))).data()


def test_options_answer_alike_however_many_texts_there_are() -> None:
    # More options than a matrix product rounds alike: ties are ties all the same.
    rng = np.random.default_rng(0)
    image = random_unit(1, dim=768)
    texts = {f"t{number}": random_unit(1, dim=768, seed=5)[0] for number in range(50)}
    data = choices.Choices(
        name="ties",
        images=MemoryImages((b"",) * 400),
        image_of=np.arange(400),
        questions=[""] * 400,
        texts=tuple(texts),
        option_VEO=np.tile(np.arange(50), (1, 400, 1)),
        answer_VE=rng.integers(0, 50, (1, 400)),
        groups=[""] * 400,
        ids=[str(number) for number in range(400)],
    )
    chosen = choices.nearest_options(
        choices.shuffle_options(data, 0), np.tile(image, (400, 1)), np.stack(list(texts.values()))
    )
    assert set(chosen[0]) == {0}


def labels_of_two_tasks() -> list[dict]:
    """Rows as of Biomedica2025EvalSet: options are of the row's task, and its order is drawn."""
    tasks = {"stain": ("an H&E stain", "a Giemsa stain"), "organ": ("liver", "spleen", "colon")}
    rng = np.random.default_rng(0)
    rows = []
    for task, words in tasks.items():
        for number in range(6 if task == "stain" else 3):
            options = rng.permutation(words).tolist()
            at = number % len(words)
            label = words[at]
            rows.append(
                {
                    "image": {"bytes": f"{task}{number}".encode(), "path": None},
                    "task": task,
                    "options": options,
                    "answer_idx": options.index(label),
                    "label": label,
                    "image_id": str(number),
                }
            )
    return rows


def right_options(data: choices.Choices, v: int = 0) -> list[str]:
    return [
        data.texts[row[at]] for row, at in zip(data.option_VEO[v], data.answer_VE[v], strict=True)
    ]


def offered(data: choices.Choices, v: int = 0) -> list[set[str]]:
    return [{data.texts[text] for text in row if text >= 0} for row in data.option_VEO[v]]


def test_a_table_of_questions_is_recognized_and_asked_with_the_options_of_each_row(
    tmp_path,
) -> None:
    rows = labels_of_two_tasks()
    path = write(tmp_path / "set", rows)
    task = closed_vqa.build(closed_vqa.Config(data=path))
    data = task.data()
    assert offered(data) == [set(row["options"]) for row in rows]
    assert right_options(data) == [row["label"] for row in rows]
    assert data.groups == [row["task"] for row in rows]
    # Right about every stain and about no organ.
    vectors = dict(zip(data.texts, np.eye(5), strict=True))
    wrong = {"liver": "spleen", "spleen": "colon", "colon": "liver"}
    images = [vectors[wrong.get(row["label"], row["label"])] for row in rows]
    scores = {s.name: s.value for s in task.evaluate(data, embedded(images, vectors)).scores}
    assert scores["accuracy"] == pytest.approx(6 / 9)
    assert scores["accuracy_mean_of_tasks"] == pytest.approx(1 / 2)
    with pytest.raises(ArtifactError, match=r"2 tasks \(organ, stain\)"):
        opening.open_labelled(path)
    one = opening.open_labelled(Plugin("table", {"path": path, "where": {"task": "organ"}}))
    assert one.classes == ("colon", "liver", "spleen")


def test_captions_of_options_take_their_place(tmp_path) -> None:
    rows = labels_of_two_tasks()
    for row in rows:
        row["captions"] = [[f"this is {option}", f"{option} seen"] for option in row["options"]]
    data = closed_vqa.build(closed_vqa.Config(data=write(tmp_path / "set", rows))).data()
    assert right_options(data, 0) == [f"this is {row['label']}" for row in rows]
    assert right_options(data, 1) == [f"{row['label']} seen" for row in rows]
    for row in rows:
        row["captions"] = [f"only {option}" for option in row["options"]]
    data = closed_vqa.build(closed_vqa.Config(data=write(tmp_path / "one", rows))).data()
    assert right_options(data) == [f"only {row['label']}" for row in rows]
    for row in rows:
        row["captions"] = [f"{row['label']} a", f"{row['label']} b"]
    data = closed_vqa.build(closed_vqa.Config(data=write(tmp_path / "right", rows))).data()
    assert right_options(data, 1) == [f"{row['label']} b" for row in rows]
    assert offered(data, 1)[-1] == {"liver b", "spleen b", "colon b"}


def test_wordings_of_the_only_right_option_are_not_taken_for_captions_of_options(tmp_path) -> None:
    rows = [
        {
            "image": b"%d" % number,
            "options": ["benign", "malignant"],
            "answer_idx": 1,
            "captions": ["a malignant lesion", "a photo of cancer"],
        }
        for number in range(3)
    ]
    path = write(tmp_path / "set", rows)
    assert right_options(closed_vqa.build(closed_vqa.Config(data=path)).data()) == ["malignant"] * 3
    given = Plugin("choices", {"path": path, "captions": "captions"})
    with pytest.raises(ArtifactError, match="captions of each option"):
        closed_vqa.build(closed_vqa.Config(data=given)).data()


def test_questions_asked_twice_are_left_out_in_captions_as_well(tmp_path) -> None:
    rows = labels_of_two_tasks()
    rows.append({**rows[0]})
    rows.append({**rows[1], "answer_idx": 1 - rows[1]["answer_idx"]})
    for row in rows:
        row["captions"] = [f"this is {option}" for option in row["options"]]
    folder = tmp_path / "set"
    path = write(folder, rows)
    pq.write_table(pa.Table.from_pylist(rows), folder / "train-00000.parquet")
    data = closed_vqa.build(closed_vqa.Config(data=path)).data()
    assert data.left_out == {
        choices.REPEATED: 1,
        choices.CONTRADICTORY: 2,
        "of another split than test": len(rows),
    }
    assert right_options(data) == [f"this is {row['label']}" for row in [rows[0], *rows[2:-2]]]


def test_tasks_that_offer_the_same_options_of_an_image_are_other_questions(tmp_path) -> None:
    rows = [
        {"image": b"%d" % number, "task": task, "options": ["no", "yes"], "answer_idx": answer}
        for number in range(3)
        for task, answer in (("edema", 1), ("cardiomegaly", number % 2))
    ]
    data = closed_vqa.build(closed_vqa.Config(data=write(tmp_path / "set", rows))).data()
    assert len(data.ids) == 6
    assert data.left_out == {}


def test_a_column_of_splits_names_the_questions_of_the_test(tmp_path) -> None:
    rows = labels_of_two_tasks()
    for number, row in enumerate(rows):
        row["split"] = ["Train", "testing", "test", None][number % 4]
    path = write(tmp_path / "set", rows)
    data = closed_vqa.build(closed_vqa.Config(data=path)).data()
    own = [row["label"] for number, row in enumerate(rows) if number % 4 in (1, 2)]
    assert right_options(data) == own
    assert data.left_out["of another split than test"] == len(rows) - len(own)
    where = closed_vqa.Config(data=Plugin("choices", {"path": path, "where": {"split": "Train"}}))
    train = [row["label"] for number, row in enumerate(rows) if number % 4 == 0]
    assert right_options(closed_vqa.build(where).data()) == train


def test_captions_of_images_are_no_options(tmp_path) -> None:
    rows = labels_of_two_tasks()
    for number, row in enumerate(rows):
        row["captions"] = [f"figure {number}"] * len(row["options"])
    path = write(tmp_path / "set", rows)
    data = closed_vqa.build(closed_vqa.Config(data=path)).data()
    assert right_options(data) == [row["label"] for row in rows]
    given = {"path": path, "options": "options", "answer": "answer_idx", "captions": "captions"}
    with pytest.raises(ArtifactError, match=r"captions.*options"):
        closed_vqa.build(closed_vqa.Config(data=Plugin("choices", given))).data()


def micro_bench(folder) -> str:
    """Rows as of µ-Bench: captions and questions by kind, of two of its sets."""
    rows = []
    for dataset, words in {"jung_et_al_2022": "ab", "nirschl_unpub_fluorescence": "xyz"}.items():
        for at, word in enumerate(words):
            options = [*words[::-1]]
            kinds = {
                f"classification_{v}": {
                    "options": [f"{one} {v}" for one in options],
                    "answer_idx": options.index(word),
                }
                for v in (0, 1)
            }
            question = {"question": "What?", "options": [*options, "none of the above"]}
            rows.append(
                {
                    "image": {"bytes": f"{dataset}{at}".encode(), "path": None},
                    "label_name": word,
                    "dataset": dataset,
                    "stain": "DAPI" if dataset == "jung_et_al_2022" else "GFP",
                    "captions": kinds,
                    "questions": {"classification": {**question, "answer": word}},
                }
            )
    return write(folder, rows)


def test_micro_bench_is_asked_in_the_authors_captions(tmp_path) -> None:
    data = closed_vqa.build(closed_vqa.Config(data=micro_bench(tmp_path / "ubench"))).data()
    assert [right_options(data, v) for v in (0, 1)] == [
        [f"{w} {v}" for w in "abxyz"] for v in (0, 1)
    ]
    assert offered(data, 1)[4] == {"x 1", "y 1", "z 1"}
    assert sorted(set(data.groups)) == ["jung_et_al_2022", "nirschl_unpub_fluorescence"]


def test_benchmarks_of_the_table_take_them_from_there(tmp_path) -> None:
    micro_bench(tmp_path / "ubench")
    names = ["jung_2022", "fluorescence_cells", "microbench_stain"]
    run = {"out": "o", "model": "m", "benchmarks": names, "data_root": str(tmp_path)}
    found, skipped = benchmarks.resolve_tasks(configs.build(BenchmarkConfig, run))
    assert not skipped
    data = {name: plugins.make("benchmark.tasks", plugin).data() for name, plugin in found.items()}
    assert right_options(data["fluorescence_cells"], 1) == ["x 1", "y 1", "z 1"]
    assert right_options(data["jung_2022"]) == ["a 0", "b 0"]
    # There are no captions of stains, which are classes over all images.
    assert right_options(data["microbench_stain"])[0] == "this is an image of DAPI"
    probes = configs.build(BenchmarkConfig, {**run, "benchmarks_as": "zero_shot"})
    found, _ = benchmarks.resolve_tasks(probes)
    assert found["jung_2022"].settings["data"]["name"] == "table"


def test_a_task_that_no_question_is_of_is_refused(tmp_path) -> None:
    path = write(tmp_path / "set", labels_of_two_tasks())
    wanted = Plugin("choices", {"path": path, "tasks": ["organ", "Stain"]})
    with pytest.raises(ArtifactError, match=r"'Stain'.*organ, stain"):
        closed_vqa.build(closed_vqa.Config(data=wanted)).data()


def test_the_mean_over_tasks_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(0)
    found = np.stack([rng.integers(0, 3, 40), rng.random(40)], axis=1)
    weights = rng.integers(0, 3, (4, 40))
    weights[3, found[:, 0] == 1] = 0
    for row, value in zip(weights, closed_vqa.mean_of_tasks(found, weights), strict=True):
        drawn = np.repeat(found, row, axis=0)
        means = [drawn[drawn[:, 0] == task, 1].mean() for task in set(drawn[:, 0])]
        assert value == pytest.approx(np.mean(means))
