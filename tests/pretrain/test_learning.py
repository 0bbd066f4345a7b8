"""The tiny recipe learns from articles of our own what it can use on articles it has not seen."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from biovl.core import config as configs
from biovl.core.artifacts import Draft, read_manifest
from biovl.pretrain import config as pretrain_config
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.run import Callbacks, run
from biovl.pretrain.schedule import Plan
from biovl.pretrain.validation import validate
from biovl.runtime.workers import Workers
from tests.pretrain.local_batches import local_batches

pytestmark = pytest.mark.ray  # to make the corpus


def test_tiny_finds_three_times_more_unseen_images_at_once_than_by_chance(
    make_sample_corpus: Callable[[int], Path], tmp_path: Path
) -> None:
    values = {
        **configs.recipe_settings(pretrain_config.tiny()),
        "corpus": str(make_sample_corpus(36)),
        "out": str(tmp_path),
    }
    config = configs.build(PretrainConfig, values)
    pairs = read_manifest(config.corpus, "corpus").counts["pairs"]["train"]
    plan, workers = Plan.of(pairs, config.batch, config.epochs), Workers()
    Draft.begin(config.out, "model", {})
    callbacks = Callbacks(
        batches=lambda built, steps, _: local_batches(config, plan, built, steps, workers),
        validate=lambda epoch, steps_done: None,
        say=print,
    )
    run(config, plan, None, callbacks, workers=workers, device=torch.device("cpu"))
    scores = validate(config, plan.steps, torch.device("cpu"))
    assert scores["pairs"] == 17
    for k, times in ((1, 3), (5, 2)):
        # Measured: 4 and 2.7 times.
        found = [scores[f"{way}_recall_at_{k}"] for way in ("image_to_text", "text_to_image")]
        assert sum(found) / 2 >= times * scores[f"chance_recall_at_{k}"]
