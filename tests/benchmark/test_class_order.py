"""Classes in bad orders, by each reader, end in the scores of scikit-learn on names.

Names are numbers as text ("10" before "2"), differ by case or by a hyphen alone, start with a
number; one has no test image; most images are of one class. The true class of an image is in its
id, so that a reader that confuses labels is found out.
"""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import softmax
from sklearn import metrics as sk

from biovl.benchmark import data as opening
from biovl.benchmark import selection
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.tasks import closed_vqa, zero_shot
from biovl.core.plugins import Plugin
from tests.benchmark.encoded import Listed, embedded, random_rows, unit

# Of train and of test.
COUNTS = {
    **{"zebra": (2, 0), "10": (1, 40), "2": (1, 3), "1": (0, 9), "t cell": (3, 8)},
    **{"T cell": (1, 8), "12": (1, 2), "1-2": (1, 6), "0 normal": (2, 5), "Äpfel": (1, 1)},
}
ROWS = [
    (split, name, f"{split}/{name}/{number}")
    for split, column in (("test", 1), ("train", 0))
    for name, counts in COUNTS.items()
    for number in range(counts[column])
]


def shuffled(rows: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    return [rows[n] for n in np.random.default_rng(3).permutation(len(rows))]


def strings(folder: Path) -> Plugin:
    rows = shuffled(ROWS)
    columns = {
        "image": [b"image"] * len(rows),
        "label": [name for _, name, _ in rows],
        "split": [split for split, _, _ in rows],
        "id": [known for _, _, known in rows],
    }
    pq.write_table(pa.table(columns), folder / "all.parquet")
    return Plugin("table", {"path": str(folder), "id": "id"})


def numbers(folder: Path) -> Plugin:
    names = sorted(COUNTS, key=lambda name: (len(name), name[::-1]))
    features = {"label": {"names": names, "_type": "ClassLabel"}}
    said = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    for split in ("train", "test"):
        rows = [row for row in shuffled(ROWS) if row[0] == split]
        columns = {
            "image": [b"image"] * len(rows),
            "label": [names.index(name) for _, name, _ in rows],
            "id": [known for _, _, known in rows],
        }
        table = pa.table(columns).replace_schema_metadata(said)
        pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    return Plugin("table", {"path": str(folder), "id": "id"})


def folders(folder: Path) -> Plugin:
    for _, _, known in ROWS:
        path = folder / f"{known.replace(' ', '_')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"image")
    return Plugin("folder", {"path": str(folder)})


def tars(folder: Path) -> Plugin:
    names = list(reversed(COUNTS))
    (folder / "classnames.txt").write_text("\n".join(names))
    for split in ("train", "test"):
        (folder / split).mkdir()
        with tarfile.open(folder / split / "0.tar", "w") as tar:
            for own, name, known in shuffled(ROWS):
                for ending, content in (
                    ("png", b"image"),
                    ("cls", str(names.index(name)).encode()),
                ):
                    if own == split:
                        item = tarfile.TarInfo(f"{known}.{ending}")
                        item.size = len(content)
                        tar.addfile(item, io.BytesIO(content))
    return Plugin("webdataset", {"path": str(folder)})


READERS = (strings, numbers, folders, tars)


@pytest.fixture(params=READERS, ids=lambda reader: reader.__name__)
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Plugin:
    reader: Callable[[Path], Plugin] = request.param
    return reader(tmp_path)


def true_names(data: LabelledImages) -> list[str]:
    return [known.rsplit("/", 2)[1].replace("_", " ") for known in data.ids]


def test_an_image_keeps_its_class(plugin: Plugin) -> None:
    data = opening.open_labelled(plugin)
    assert [data.classes[label] for label in data.labels] == true_names(data)
    assert sorted(true_names(data)) == sorted(name for _, name, _ in ROWS)


def vectors(data: LabelledImages, template: str, dim: int = 24) -> dict[str, np.ndarray]:
    names = sorted(COUNTS)
    rows = random_rows(len(names), dim, seed=1)
    return {template.replace("{}", name): row for name, row in zip(names, rows, strict=True)}


def test_zero_shot_is_scikit_learns_on_names(plugin: Plugin) -> None:
    task = zero_shot.ZeroShot(zero_shot.Config(data=plugin, templates=("{}",), resamples=100))
    data = task.data()
    text_of, true = vectors(data, "{}"), true_names(data)
    noise_ND = np.random.default_rng(2).normal(size=(len(true), 24))
    image_ND = unit(np.stack([text_of[name] for name in true]) + 0.25 * noise_ND)
    outcome = task.evaluate(data, embedded(image_ND, text_of))
    # CLIP_benchmark's: the largest similarity, and the mean recall over classes of the labels.
    names = sorted(COUNTS)
    similarity_NC = image_ND @ np.stack([text_of[name] for name in names]).T
    predicted = [names[number] for number in similarity_NC.argmax(1)]
    assert outcome.predictions["predicted_class"].to_pylist() == predicted
    assert outcome.predictions["class"].to_pylist() == true
    scores = {score.name: score.value for score in outcome.scores}
    assert scores["accuracy"] == pytest.approx(sk.accuracy_score(true, predicted))
    recalls = sk.recall_score(true, predicted, labels=sorted(set(true)), average="macro")
    assert scores["balanced_accuracy"] == pytest.approx(recalls)
    probability_NC = softmax(10.0 * similarity_NC.astype(np.float64), axis=1)
    areas = [
        sk.roc_auc_score([one == name for one in true], probability_NC[:, names.index(name)])
        for name in sorted(set(true))
    ]
    assert scores["auroc"] == pytest.approx(np.mean(areas), abs=1e-6)
    assert 0.5 < scores["accuracy"] < 1


def test_closed_questions_are_scikit_learns_on_names(plugin: Plugin) -> None:
    config = closed_vqa.Config(data=plugin, templates=("{}", "a photo of {}"), resamples=100)
    task = closed_vqa.ClosedVqa(config)
    data = task.data()
    text_of = {**vectors(data, "{}"), **vectors(data, "a photo of {}", 24)}
    true = [known.rsplit("/", 2)[1].replace("_", " ") for known in data.ids]
    noise_ND = np.random.default_rng(2).normal(size=(len(true), 24))
    image_ND = unit(np.stack([text_of[name] for name in true]) + 0.25 * noise_ND)
    outcome = task.evaluate(data, embedded(image_ND, text_of))
    options = sorted(
        {text for texts in outcome.predictions["options/1"].to_pylist() for text in texts}
    )
    nearest = (image_ND @ np.stack([text_of[one] for one in options]).T).argmax(1)
    predicted = [options[number] for number in nearest]
    assert outcome.scores[0].value == pytest.approx(sk.accuracy_score(true, predicted))
    assert {"10", "2", "1-2", "12"} <= set(options)


@pytest.mark.parametrize("make", [strings, numbers, tars])
def test_random_labels_score_chance(make: Callable[[Path], Plugin], tmp_path: Path) -> None:
    task = zero_shot.ZeroShot(
        zero_shot.Config(data=make(tmp_path), templates=("{}",), resamples=200)
    )
    data = task.data()
    text_of, true = vectors(data, "{}"), true_names(data)
    # As many images of each class, of which nothing is known.
    rng = np.random.default_rng(5)
    drawn = [str(name) for name in rng.choice(sorted(set(true)), 900)]
    names = list(data.classes)
    images = selection.labelled(
        name="random",
        images=Listed(900),
        labels=[names.index(name) for name in drawn],
        classes=names,
        splits=["test"] * 900,
        ids=[str(number) for number in range(900)],
    )
    image_ND = random_rows(900, 24, seed=6)
    scores = {one.name: one for one in task.evaluate(images, embedded(image_ND, text_of)).scores}
    assert scores["accuracy"].low - 0.01 <= 1 / len(names) <= scores["accuracy"].high + 0.01
    assert scores["auroc"].low - 0.01 <= 0.5 <= scores["auroc"].high + 0.01
