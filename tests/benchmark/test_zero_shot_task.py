"""Zero-shot: perfect and guessing; ensembles and scores against scikit-learn."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn import metrics as sk

from biovl.benchmark import class_names, selection
from biovl.benchmark.class_names import normalize
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.prompts import PROMPTS
from biovl.benchmark.tasks import zero_shot
from biovl.benchmark.tasks.zero_shot import Config, ZeroShot
from biovl.core import config as configs
from biovl.core.errors import ArtifactError, ConfigError
from tests.benchmark.encoded import Listed, embedded, random_rows, unit


def labelled(labels: list[int] | np.ndarray, classes: int) -> LabelledImages:
    return selection.labelled(
        name="set",
        images=Listed(len(labels)),
        labels=labels,
        classes=[f"class {number}" for number in range(classes)],
        splits=["test"] * len(labels),
        ids=[str(row) for row in range(len(labels))],
    )


def texts_of(classes: int, templates: tuple[str, ...], seed: int = 9) -> dict[str, np.ndarray]:
    rows = iter(random_rows(classes * len(templates), seed=seed))
    return {
        template.replace("{}", f"class {number}"): next(rows)
        for number in range(classes)
        for template in templates
    }


TEMPLATES = ("{}", "a photo of {}")


def judged(data: LabelledImages, image_ND: np.ndarray, texts: dict[str, np.ndarray], **more):
    task = ZeroShot(Config(data="x", templates=TEMPLATES, resamples=200))
    return task.evaluate(data, embedded(image_ND, texts, **more))


def scores(outcome) -> dict[str, float]:
    return {score.name: score.value for score in outcome.scores}


def test_prompts_of_a_class_are_averaged_and_made_unit_again() -> None:
    texts = {"{}".replace("{}", "x"): np.array([1.0, 0]), "a photo of x": np.array([0, 1.0])}
    found = zero_shot.class_embeddings(embedded(np.eye(2), texts), ["x"], TEMPLATES)
    np.testing.assert_allclose(found, [[0.5**0.5, 0.5**0.5]], rtol=1e-6)


def test_a_perfect_model_scores_one() -> None:
    texts = texts_of(3, TEMPLATES)
    data = labelled([0, 1, 2, 2, 1], 3)
    class_CD = zero_shot.class_embeddings(
        embedded(np.eye(2), texts), [f"class {n}" for n in range(3)], TEMPLATES
    )
    assert set(scores(judged(data, class_CD[data.labels], texts)).values()) == {1.0}


@pytest.mark.parametrize("classes", [2, 5])
def test_a_random_model_scores_chance_within_its_interval(classes: int) -> None:
    labels = np.random.default_rng(0).integers(0, classes, 600)
    outcome = judged(labelled(labels, classes), random_rows(600, 64), texts_of_64(classes))
    for score in outcome.scores:
        if score.name != "macro_f1":
            chance = 0.5 if score.name == "auroc" else 1 / classes
            assert score.low - 0.02 <= chance <= score.high + 0.02, score


def texts_of_64(classes: int) -> dict[str, np.ndarray]:
    names = [t.replace("{}", f"class {n}") for n in range(classes) for t in TEMPLATES]
    return dict(zip(names, random_rows(len(names), 64, seed=5), strict=True))


@pytest.mark.parametrize("classes", [2, 4])
def test_scores_are_those_of_scikit_learn_on_the_published_predictions(classes: int) -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, classes, 90)
    texts = texts_of(classes, TEMPLATES)
    class_CD = zero_shot.class_embeddings(
        embedded(np.eye(2), texts), [f"class {n}" for n in range(classes)], TEMPLATES
    )
    image_ND = unit(class_CD[labels] + 0.4 * rng.normal(size=(90, 16)))
    outcome = judged(labelled(labels, classes), image_ND, texts, unreadable={3: "gone"})
    table = outcome.predictions.filter(outcome.predictions["predicted"].is_valid())
    assert len(table) == 89
    label, predicted = table["label"].to_numpy(), table["predicted"].to_numpy()
    probability = np.array(table["probability"].to_pylist())
    expected = {
        "accuracy": sk.accuracy_score(label, predicted),
        "balanced_accuracy": sk.balanced_accuracy_score(label, predicted),
        "macro_f1": sk.f1_score(label, predicted, average="macro"),
        "auroc": sk.roc_auc_score(label, probability[:, 1])
        if classes == 2
        else sk.roc_auc_score(label, probability, multi_class="ovr"),
    }
    assert scores(outcome) == pytest.approx(expected)
    assert 0.3 < expected["accuracy"] < 1
    similarity = np.array(table["similarity"].to_pylist())
    assert (similarity.argmax(1) == predicted).all()
    assert {score.count for score in outcome.scores} == {89}
    assert outcome.predictions["defect"][3].as_py() == "gone"


def test_classes_without_images_do_not_spoil_the_others() -> None:
    texts = texts_of(4, TEMPLATES)
    found = scores(judged(labelled([0, 0, 2], 4), random_rows(3), texts))
    assert found.keys() == {"accuracy", "balanced_accuracy", "macro_f1", "auroc"}
    only = scores(judged(labelled([1, 1], 4), random_rows(2), texts))
    assert "auroc" not in only


def test_the_confusion_plot_is_the_same_bytes_every_time() -> None:
    texts = texts_of(2, TEMPLATES)
    plots = [
        judged(labelled([0, 1], 2), random_rows(2), texts).plots["confusion"] for _ in range(2)
    ]
    assert plots[0] == plots[1]
    assert Image.open(io.BytesIO(plots[0])).width > 300


def test_nothing_readable_is_an_error() -> None:
    with pytest.raises(ArtifactError, match=r"\bset\b"):
        judged(
            labelled([0, 1], 2),
            random_rows(2),
            texts_of(2, TEMPLATES),
            unreadable={0: "gone", 1: "gone"},
        )


def named(*classes: str) -> LabelledImages:
    return replace(labelled([0, 1], len(classes)), classes=classes)


def test_words_come_from_the_settings_the_paper_or_the_data() -> None:
    data = named("normal", "pneumonia")
    assert ZeroShot(Config(data="x")).classes(data) == ("normal", "pneumonia")
    assert ZeroShot(Config(data="x", prompts="rsna")).classes(data) == PROMPTS["rsna"].classes
    words = {"Pneumonia": "a sick lung", "NORMAL": "a healthy lung"}
    rsna = ZeroShot(Config(data="x", prompts="rsna", classes=words))
    assert rsna.classes(data) == ("a healthy lung", "a sick lung")
    assert rsna.templates == PROMPTS["rsna"].templates


# Folders come in the order of the alphabet, Table 10 lists the healthy class first, or second.
@pytest.mark.parametrize(
    ("prompts", "folders"),
    [
        ("pcam", {"metastasis": 1, "normal": 0}),
        ("pcam", {"Lymph-Node Metastasis": 1, "normal_lymph_node": 0}),
        ("pcam", {"0": 0, "1": 1}),
        ("pcam", {"0_tumor": 1, "1_no tumor": 0}),
        ("pcam", {"lymph node": 0, "lymph node containing metastatic tumor tissue": 1}),
        ("rsna", {"Lung_Opacity": 1, "Normal": 0}),
        ("rsna", {"No Finding": 0, "PNEUMONIA": 1}),
        ("lc25000_lung", {"aca": 0, "n": 1, "scc": 2}),
        ("lc25000_lung", {"benign": 1, "adenocarcinoma": 0, "squamous_cell_carcinoma": 2}),
        ("lc25000_lung", {"a-normal": None, "lung_aca": 0, "lung_scc": 2}),
        ("lc25000_colon", {"Colon_benign_tissue": 1, "colon_aca": 0}),
        ("tcga_til", {"til-negative": 0, "til-positive": 1}),
        ("tcga_til", {"TILs": 1, "none": 0}),
        ("tcga_til", {"0": None, "1": None}),
    ],
)
def test_the_papers_prompts_meet_folders_by_name(
    tmp_path, prompts: str, folders: dict[str, int | None]
) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.png").write_bytes(b"")
    task = ZeroShot(Config(data=str(tmp_path), prompts=prompts))
    if None in folders.values():
        with pytest.raises(ConfigError) as refused:
            task.data()
        assert all(name in str(refused.value) for name in PROMPTS[prompts].classes)
        assert all(name.replace("_", " ") in str(refused.value) for name in folders)
        return
    data = task.data()
    words = [PROMPTS[prompts].classes[number] for number in (folders[n] for n in sorted(folders))]
    assert task.classes(data) == tuple(words)
    # A model that knows the words of each image's folder is right about all, whatever the order.
    texts = {
        template.replace("{}", word): np.eye(4)[number]
        for number, word in enumerate(PROMPTS[prompts].classes)
        for template in PROMPTS[prompts].templates
    }
    images = np.stack([np.eye(4)[folders[Path(name).parts[0]]] for name in data.ids])
    outcome = task.evaluate(data, embedded(images, texts))
    assert set(scores(outcome).values()) == {1.0}
    table = outcome.predictions
    assert table["predicted_class"].to_pylist() == table["class"].to_pylist()


@pytest.mark.parametrize("classes", [2, 3])
def test_shuffled_labels_score_chance(classes: int) -> None:
    rng = np.random.default_rng(3)
    texts = texts_of(classes, TEMPLATES)
    class_CD = zero_shot.class_embeddings(
        embedded(np.eye(2), texts), [f"class {n}" for n in range(classes)], TEMPLATES
    )
    shown = rng.integers(0, classes, 900)
    outcome = judged(labelled(rng.permutation(shown), classes), class_CD[shown], texts)
    assert scores(outcome)["accuracy"] == pytest.approx(1 / classes, abs=0.05)
    assert scores(outcome)["auroc"] == pytest.approx(0.5, abs=0.05)


def test_no_spelling_belongs_to_two_classes_of_a_benchmark() -> None:
    for known in PROMPTS.values():
        spellings = known.spellings.items()
        all_of_them = [{normalize(one) for one in (word, *more)} for word, more in spellings]
        assert sum(map(len, all_of_them)) == len(set().union(*all_of_them))


def test_a_list_of_words_is_matched_by_name_in_any_order() -> None:
    data = named("metastasis", "normal")
    words = PROMPTS["pcam"].classes
    assert ZeroShot(Config(data="x", classes=words)).classes(data) == words[::-1]
    assert ZeroShot(Config(data="x", classes=("Normal", "Metastasis"))).classes(data) == (
        "Metastasis",
        "Normal",
    )


@pytest.mark.parametrize(
    "words",
    [("sick", "well"), ("normal",), ("normal", "metastasis", "other"), {"normal": "x"}],
)
def test_words_of_other_classes_are_refused_with_both_sides(words: object) -> None:
    with pytest.raises(ConfigError, match=r"'metastasis', 'normal'.*classes"):
        ZeroShot(Config(data="x", classes=words)).classes(named("metastasis", "normal"))


def test_signs_and_numbers_that_are_all_of_a_name_tell_classes_apart() -> None:
    assert normalize("ER+") != normalize("ER-")
    assert normalize(" T-cell ") == normalize("t_Cell")
    assert class_names.match(["1", "0"], {"0": (), "1": ()}, where="x", whose="y") == ["1", "0"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": "pkam"}, "'pkam'.*lc25000_colon"),
        ({"templates": ["a photo"]}, "{}.*'a photo'"),
        ({"template": ["{}"]}, "template: "),
    ],
)
def test_settings_that_cannot_be_met_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configs.build(Config, {"data": "x", **changes})
