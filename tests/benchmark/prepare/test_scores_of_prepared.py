"""A tiny model on prepared folders: scores are those of an independent computation on raw files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biovl.benchmark.tasks import EmbeddedBenchmark
from biovl.benchmark.tasks.closed_vqa import ClosedVqa
from biovl.benchmark.tasks.closed_vqa import Config as ClosedConfig
from biovl.benchmark.tasks.retrieval import Config, Retrieval
from biovl.core.plugins import Plugin
from biovl.models.encoder import Encoder
from tests.benchmark.prepare.preparing import encoded, run
from tests.benchmark.prepare.test_captioned import SPLITS, flickr, words
from tests.benchmark.prepare.test_multiple_choice import micro_rows, write
from tests.benchmark.toy_questions import tiny_encoder


@pytest.fixture(scope="module")
def model() -> Encoder:
    return tiny_encoder()


def scored(task: Any, model: Encoder) -> dict[str, float]:
    data = task.data()
    found = EmbeddedBenchmark(
        image_ND=model.embed_images(data.images.read(0, len(data.images))),
        unreadable={},
        text=lambda texts: model.embed_texts(list(texts)),
        logit_scale=1.0,
        model="tiny",
        has_text=True,
    )
    return {score.name: score.value for score in task.evaluate(data, found).scores}


def test_recall_is_that_of_clip_benchmark_with_five_captions(
    tmp_path: Path, model: Encoder
) -> None:
    run("flickr30k", flickr(tmp_path / "raw"), tmp_path / "out")
    found = scored(Retrieval(Config(data=str(tmp_path / "out"), ks=(1, 2), resamples=20)), model)
    tested = [image for image, split in enumerate(SPLITS) if split == "test"]
    image_ND = model.embed_images([encoded(image) for image in tested])
    texts = [words(image, number) for image in tested for number in range(5)]
    near_MN = model.embed_texts(texts) @ image_ND.T
    is_pair_MN = np.repeat(np.eye(len(tested), dtype=bool), 5, axis=0)
    for k in (1, 2):
        # An image is right if any of its captions is among the k nearest.
        nearest_kN = np.argsort(-near_MN, axis=0)[:k]
        is_right_N = np.take_along_axis(is_pair_MN, nearest_kN, axis=0).any(0)
        assert found[f"image_to_text_recall_at_{k}"] == pytest.approx(is_right_N.mean())
        nearest_Mk = np.argsort(-near_MN, axis=1)[:, :k]
        is_right_M = np.take_along_axis(is_pair_MN, nearest_Mk, axis=1).any(1)
        assert found[f"text_to_image_recall_at_{k}"] == pytest.approx(is_right_M.mean())


def test_accuracy_of_closed_questions_is_that_of_the_nearest_option(
    tmp_path: Path, model: Encoder
) -> None:
    rows = [row for row in micro_rows(8) if row["dataset"] == "jung_et_al_2022"]
    run("ubench", write(tmp_path / "raw", micro_rows(8)), tmp_path / "out")
    where = {"dataset": "jung_et_al_2022"}
    data = Plugin("choices", {"path": str(tmp_path / "out"), "where": where})
    found = scored(ClosedVqa(ClosedConfig(data=data, resamples=20)), model)
    image_ND = model.embed_images([row["image"]["bytes"] for row in rows])
    for wording in (0, 1):
        is_right = []
        for row, image_D in zip(rows, image_ND, strict=True):
            caption = row["captions"][f"classification_{wording}"]
            near_O = model.embed_texts(caption["options"]) @ image_D
            is_right.append(near_O.argmax() == caption["answer_idx"])
        assert found[f"accuracy/captions {wording + 1}"] == pytest.approx(np.mean(is_right))
