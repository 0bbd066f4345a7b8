"""The linear probe as a task: with few labels and with all, judged on test alone."""

import numpy as np
import pytest
import sklearn.metrics

from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.tasks import linear_probe
from biovl.core import config as configs
from biovl.core.errors import ArtifactError, ConfigError
from tests.benchmark.memory import MemoryImages, embedded, random_unit, unit

QUICK = {"strengths": (0.01, 1.0, 100.0)}


def labelled(classes=3, train=300, val=60, test=150, seed=0):
    splits = np.repeat(["train", "val", "test"], [train, val, test])
    return LabelledImages(
        name="toy",
        images=MemoryImages((b"",) * len(splits)),
        labels=np.random.default_rng(seed).integers(0, classes, len(splits)),
        classes=tuple(f"c{number}" for number in range(classes)),
        splits=splits,
        ids=[f"i{number}" for number in range(len(splits))],
    )


def features(data, noise, seed=1):
    centres = 3 * np.eye(len(data.classes), 16)
    return unit(centres[data.labels] + noise * random_unit(len(data.ids), 16, seed))


def probed(data, image_ND, unreadable=(), **settings):
    config = linear_probe.Config(data="", **{**QUICK, **settings})
    return linear_probe.build(config).evaluate(data, embedded(image_ND, unreadable=unreadable))


def test_a_perfect_model_scores_one_with_one_label_in_a_hundred() -> None:
    data = labelled()
    outcome = probed(data, features(data, noise=0.1))
    assert [score.name for score in outcome.scores[::3]] == [
        "accuracy",
        "accuracy/0.1",
        "accuracy/0.01",
    ]
    assert all((s.value, s.low, s.high) == (1, 1, 1) for s in outcome.scores)
    assert outcome.scores[-1].note == "3 seeds, deviation 0.0000"
    assert [fit["images"] for fit in outcome.notes["fits"]] == [300, 31, 31, 31, 3, 3, 3]
    few = probed(data, features(data, noise=0.1), fractions=(0.1, 0.01))
    # The name of its score does not say the share.
    assert few.scores[0].name == "accuracy"
    assert few.notes["protocol"] == ["trained on 10 % of the training images"]
    assert "protocol" not in outcome.notes


def test_a_random_model_scores_chance_within_its_interval_as_often_as_it_says() -> None:
    data = labelled(classes=2)
    covered = {"balanced_accuracy": 0, "auroc": 0}
    for seed in range(20):
        found = probed(data, random_unit(len(data.ids), 16, seed), fractions=(0.1,), seeds=(seed,))
        for score in found.scores:
            if score.name in covered:
                covered[score.name] += score.low < 0.5 < score.high
    assert min(covered.values()) >= 17


def test_scores_follow_from_the_predictions_with_scikit_learn() -> None:
    data = labelled(classes=2, val=0)
    outcome = probed(data, features(data, noise=8.0), unreadable=[3, 310])
    table = outcome.predictions.to_pandas()
    assert table["id"].tolist() == data.ids[300:]
    assert table.isna().any(axis=1).tolist() == [n == 10 for n in range(150)]
    table = table.dropna()
    value = {score.name: score.value for score in outcome.scores}
    for part, seeds in (("", "1/0"), ("/0.1", "0.1/0 0.1/1 0.1/2")):
        seeds = seeds.split()
        hits = [
            sklearn.metrics.balanced_accuracy_score(table.label, table[f"predicted/{seed}"])
            for seed in seeds
        ]
        areas = [
            sklearn.metrics.roc_auc_score(table.label, table[f"score/{seed}"]) for seed in seeds
        ]
        assert value[f"balanced_accuracy{part}"] == pytest.approx(np.mean(hits))
        assert value[f"auroc{part}"] == pytest.approx(np.mean(areas))
        assert value[f"accuracy{part}"] == pytest.approx(table[f"accuracy{part}"].mean())
    assert outcome.notes["left_out"] == {}
    assert outcome.notes["validation"] == "parts of the images drawn, held out in turn"
    assert outcome.notes["fits"][0]["images"] == 299


def test_labels_of_test_decide_nothing() -> None:
    data = labelled()
    image_ND = features(data, noise=4.0)
    other = labelled()
    other.labels[360:] = np.random.default_rng(9).integers(0, 3, 150)
    one, two = probed(data, image_ND), probed(other, image_ND)
    assert one.notes["fits"] == two.notes["fits"]
    named = [name for name in one.predictions.column_names if name.startswith("predicted")]
    assert one.predictions.select(named) == two.predictions.select(named)


def test_a_set_without_train_or_readable_test_is_refused(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.png").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"train.*\['test'\]"):
        linear_probe.build(linear_probe.Config(data=str(tmp_path))).data()
    data = labelled(train=20, val=0, test=2)
    with pytest.raises(ArtifactError, match=r"test.*toy"):
        probed(data, features(data, 0.1), unreadable=[20, 21])


def test_settings_make_sense() -> None:
    for wrong, where in (
        ({"fractions": (0.0, 1.0)}, r"fractions\.0"),
        ({"fractions": (0.1, 0.1)}, "fractions.*different"),
        ({"seeds": (0, 0)}, "seeds.*different"),
    ):
        with pytest.raises(ConfigError, match=where):
            configs.build(linear_probe.Config, {"data": "", **wrong})
