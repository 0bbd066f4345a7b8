"""Models in MTEB: its scores on small tasks of our own are those of our benchmark."""

import io
import json
from pathlib import Path
from typing import Any

import datasets
import mteb
import numpy as np
import pytest
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.abstasks.zeroshot_classification import AbsTaskZeroShotClassification
from mteb.models.models_protocols import EncoderProtocol
from mteb.tasks.zeroshot_classification.eng.patch_camelyon import (
    PatchCamelyonZeroShotClassification,
)
from PIL import Image

from biovl.benchmark import encoders, selection
from biovl.benchmark.mteb_model import MtebEncoder, register
from biovl.benchmark.tasks import EmbeddedBenchmark
from biovl.benchmark.tasks.retrieval import Config as RetrievalConfig
from biovl.benchmark.tasks.retrieval import Retrieval
from biovl.benchmark.tasks.zero_shot import Config as ZeroShotConfig
from biovl.benchmark.tasks.zero_shot import ZeroShot
from biovl.core.errors import ConfigError
from biovl.publish import mteb_results
from tests.benchmark.memory import MemoryImages
from tests.index.test_job import save_model

COUNT, NAME = 24, "ann/small"
CLASSES = ("red noise", "green noise", "blue noise")


def picture(number: int) -> bytes:
    """Return an encoded image; palettes, greys, alpha and 16 bits are among them."""
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (48 + number, 60, 3), np.uint8)
    pixels[..., number % 3] |= 0x80
    image = Image.fromarray(pixels)
    modes: dict[int, Any] = {
        1: lambda: image.convert("L"),
        2: lambda: image.convert("P"),
        3: lambda: Image.fromarray(np.dstack([pixels, pixels[..., :1]])),
        4: lambda: Image.fromarray(pixels[..., 0].astype(np.uint16) * 257),
    }
    stream = io.BytesIO()
    modes.get(number, lambda: image)().save(stream, "PNG")
    return stream.getvalue()


IMAGES = [picture(number) for number in range(COUNT)]
TEXTS = [f"figure of {CLASSES[n % 3]} number {n * n}" for n in range(COUNT)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_model(tmp_path_factory.mktemp("mteb") / "model")
    register(str(folder), NAME)
    return folder


@pytest.fixture(scope="module")
def ours(model: Path) -> EmbeddedBenchmark:
    """Return the embeddings of the images as benchmark computes them."""
    loaded = encoders.load(str(model))
    pixels = np.stack([encoders.prepare(loaded, data) for data in IMAGES])
    return EmbeddedBenchmark(
        image_ND=loaded.embed_pixels(pixels),
        unreadable={},
        text=loaded.embed_texts,
        logit_scale=loaded.logit_scale,
        model="small",
        has_text=True,
    )


def metadata(**changes: Any) -> TaskMetadata:
    values = {
        "description": "Noise.",
        "reference": None,
        "dataset": {"path": "local/noise", "revision": "1"},
        "eval_splits": ["test"],
        "eval_langs": ["eng-Latn"],
        "modalities": ["image", "text"],
        **dict.fromkeys(("date", "domains", "task_subtypes", "license"), None),
        **dict.fromkeys(("annotations_creators", "dialect", "sample_creation"), None),
        "bibtex_citation": None,
    }
    return TaskMetadata(**{**values, **changes})


def images() -> datasets.Dataset:
    rows = {"id": [f"image-{n}" for n in range(COUNT)], "image": [{"bytes": b} for b in IMAGES]}
    return datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())


class NoiseRetrieval(AbsTaskRetrieval):
    metadata = metadata(
        name="NoiseRetrieval", type="Any2AnyRetrieval", category="t2i", main_score="ndcg_at_10"
    )

    def load_data(self, *arguments: Any, **settings: Any) -> None:
        queries = {"id": [f"text-{n}" for n in range(COUNT)], "text": TEXTS}
        relevant = {f"text-{n}": {f"image-{n}": 1} for n in range(COUNT)}
        self.dataset = {
            "default": {
                "test": {
                    "corpus": images(),
                    "queries": datasets.Dataset.from_dict(queries),
                    "relevant_docs": relevant,
                    "top_ranked": None,
                }
            }
        }
        self.data_loaded = True


class NoiseZeroShot(AbsTaskZeroShotClassification):
    metadata = metadata(
        name="NoiseZeroShot", type="ZeroShotClassification", category="i2t", main_score="accuracy"
    )

    def load_data(self, *arguments: Any, **settings: Any) -> None:
        labelled = images().add_column("label", [n % 3 for n in range(COUNT)])
        self.dataset = datasets.DatasetDict(test=labelled)
        self.data_loaded = True

    def get_candidate_labels(self) -> list[str]:
        return [f"an image of {name}" for name in CLASSES]


def evaluate(task: Any) -> dict[str, float]:
    result = mteb.evaluate(
        mteb.get_model(NAME), task, cache=None, co2_tracker=False, show_progress_bar=False
    )
    return result.task_results[0].scores["test"][0]


def test_retrieval_scores_are_ours(model: Path, ours: EmbeddedBenchmark) -> None:
    theirs = evaluate(NoiseRetrieval())
    data = selection.pairs(
        name="noise",
        images=MemoryImages(tuple(IMAGES)),
        texts=TEXTS,
        ids=[str(n) for n in range(COUNT)],
    )
    outcome = Retrieval(RetrievalConfig(data="x", ks=(1, 3, 5, 10), resamples=20)).evaluate(
        data, ours
    )
    scores = {score.name: score.value for score in outcome.scores}
    for k in (1, 3, 5, 10):
        expected = scores[f"text_to_image_recall_at_{k}"]
        assert theirs[f"recall_at_{k}"] == pytest.approx(expected, abs=1e-5)
    assert 0 < theirs["recall_at_10"] < 1


def test_zero_shot_accuracy_is_ours(model: Path, ours: EmbeddedBenchmark) -> None:
    theirs = evaluate(NoiseZeroShot())
    data = selection.labelled(
        name="noise",
        images=MemoryImages(tuple(IMAGES)),
        labels=[n % 3 for n in range(COUNT)],
        classes=CLASSES,
        splits=["test"] * COUNT,
        ids=[str(n) for n in range(COUNT)],
    )
    task = ZeroShot(ZeroShotConfig(data="x", templates=("an image of {}",), resamples=20))
    scores = {score.name: score.value for score in task.evaluate(data, ours).scores}
    assert theirs["accuracy"] == pytest.approx(scores["accuracy"], abs=1e-6)
    assert theirs["f1"] == pytest.approx(scores["macro_f1"], abs=1e-6)


class SmallPatchCamelyon(PatchCamelyonZeroShotClassification):
    """MTEB's task on images of our own, in the columns of its data set."""

    def load_data(self, *arguments: Any, **settings: Any) -> None:
        rows = images().rename_column("image", "webp").remove_columns("id")
        self.dataset = datasets.DatasetDict(test=rows.add_column("cls", PATCHES))
        self.data_loaded = True


PATCHES = [int(n % 3 == 0) for n in range(COUNT)]
"""1 is a metastasis."""


def test_patch_camelyon_of_mteb_is_our_benchmark_pcam_mteb(
    model: Path, ours: EmbeddedBenchmark
) -> None:
    theirs = evaluate(SmallPatchCamelyon())
    # Folders in alphabetical order: the class of MTEB's label 1 is the first.
    data = selection.labelled(
        name="pcam",
        images=MemoryImages(tuple(IMAGES)),
        labels=[1 - label for label in PATCHES],
        classes=("metastasis", "normal"),
        splits=["test"] * COUNT,
        ids=[str(n) for n in range(COUNT)],
    )
    task = ZeroShot(ZeroShotConfig(data="x", prompts="pcam_mteb", resamples=20))
    outcome = task.evaluate(data, ours)
    accuracy = next(score.value for score in outcome.scores if score.name == "accuracy")
    assert theirs["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    # The result file that we write from the predictions has all of MTEB's scores.
    similarity_N2 = np.array(outcome.predictions["similarity"].to_pylist())[:, ::-1]
    written = json.loads(mteb_results.result_json(PATCHES, similarity_N2, "2026-01-02"))
    (row,) = written["scores"]["test"]
    assert row.keys() == theirs.keys()
    numbers = [name for name, value in row.items() if isinstance(value, float)]
    for name in numbers:
        assert row[name] == pytest.approx(theirs[name], abs=1e-5), name


def test_embeddings_are_those_of_benchmark_whatever_the_images_mode(
    model: Path, ours: EmbeddedBenchmark
) -> None:
    encoder = mteb.get_model(NAME)
    assert isinstance(encoder, MtebEncoder)
    assert isinstance(encoder, EncoderProtocol)
    opened = [Image.open(io.BytesIO(data)) for data in IMAGES]
    np.testing.assert_allclose(encoder.embed_images(opened), ours.image_ND, atol=1e-6)
    batches = [{"image": opened[:2], "text": TEXTS[:2]}]
    both = encoder.encode(
        batches, task_metadata=NoiseRetrieval.metadata, hf_split="test", hf_subset="default"
    )
    summed = ours.image_ND[:2] + ours.text(TEXTS[:2])
    np.testing.assert_allclose(
        both, summed / np.linalg.norm(summed, axis=1, keepdims=True), atol=1e-6
    )


def test_results_have_the_revision_of_the_weights(model: Path, tmp_path: Path) -> None:
    first = mteb.get_model_meta(NAME)
    assert first.name == NAME
    other = register(str(save_model(tmp_path / "other", seed=2)), "ann/other")
    assert first.revision != other.revision
    assert first.modalities == ["image", "text"]


def test_a_name_of_mteb_is_not_replaced(model: Path) -> None:
    with pytest.raises(ConfigError, match="choose another name"):
        register(str(model), "openai/clip-vit-base-patch32")
