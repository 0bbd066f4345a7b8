"""A whole image tower that learns: what is drawn and chosen, and that it learns."""

import io
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from biovl.benchmark import encoders, few_shot, fine_tune_job, probe
from biovl.benchmark.config import BenchmarkWorkers
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.few_shot import DrawResult
from biovl.benchmark.fine_tuning import Crops, Tuner, TuningConfig
from biovl.benchmark.probe import accuracy_and_likelihood
from biovl.benchmark.tasks import LearningRun, fine_tune, linear_probe
from biovl.benchmark.tasks.fine_tune import FineTuneRun
from biovl.core import config as configs
from biovl.core.errors import ConfigError, TrainingError, TrainingStopped
from tests.benchmark.memory import MemoryImages, embedded, random_unit
from tests.benchmark.test_encoders import save_clip, save_dinov2, save_ours

QUICK = TuningConfig(lrs=(3e-3,), epochs=1, least_steps=30, batch=8, warmup_share=0.1)


def striped(train=16, val=8, test=16) -> LabelledImages:
    """Stripes across or along, at any place and in any grey: no colour tells them apart."""
    rng, count, files = np.random.default_rng(0), train + val + test, []
    labels = np.arange(count) % 2
    for label in labels:
        phase, low, high = rng.integers(8), *rng.integers(0, 256, 2)
        lines = np.where((np.arange(28) + phase) // 4 % 2, low, high)
        pixels = np.broadcast_to(lines[:, None] if label else lines, (28, 28)).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(pixels).convert("RGB").save(stream, "PNG")
        files.append(stream.getvalue())
    return LabelledImages(
        name="stripes",
        images=MemoryImages(tuple(files)),
        labels=labels,
        classes=("across", "along"),
        splits=np.repeat(["train", "val", "test"], [train, val, test]),
        ids=[f"i{number}" for number in range(count)],
    )


def vectors_of(model: encoders.BenchmarkModel, data: LabelledImages) -> np.ndarray:
    files = data.images.read(0, len(data.ids))
    return model.embed_pixels(np.stack([encoders.prepare(model, file) for file in files]))


def tuner(
    folder: Path, data: LabelledImages, config: TuningConfig = QUICK, **changes: float
) -> Tuner:
    model = encoders.load(str(folder))
    rows = np.arange(len(data.ids))
    before_ND = vectors_of(model, data)
    train = np.flatnonzero(data.splits == "train")
    # No image is held: all are decoded when they are asked for.
    return Tuner(
        *(model, Crops(model, data.images, rows, int(changes.get("held", 0)), 1), data.labels, 2),
        *(train, probe.Scaling.of(before_ND[train]), config),
        **{"lr": changes.get("lr", 3e-3), "seed": 0, "device": "cpu", "precision": "float32"},
    )


def test_a_tiny_tower_learns_what_a_probe_of_it_does_not_see(tmp_path: Path) -> None:
    data, folder = striped(train=64, test=64), save_ours(tmp_path / "model")
    config = TuningConfig(lrs=(1e-3,), epochs=1, least_steps=150, batch=16)
    one = tuner(folder, data, config, lr=1e-3, held=1 << 30)
    while one.training.epochs_done < one.training.epochs:
        one.training.epoch()
    test = np.flatnonzero(data.splits == "test")
    accuracy, _ = accuracy_and_likelihood(one.predict(test), data.labels[test])
    vectors = embedded(vectors_of(encoders.load(str(folder)), data))
    probed = linear_probe.build(linear_probe.Config(data="", fractions=(1.0,), resamples=10))
    assert accuracy > 0.9
    assert accuracy > probed.evaluate(data, vectors).scores[0].value + 0.1


@pytest.mark.parametrize("save", [save_ours, save_clip, save_dinov2])
def test_every_kind_of_model_learns_with_all_of_its_image_tower(save, tmp_path: Path) -> None:
    data = striped()
    one = tuner(save(tmp_path / "model"), data)
    before = deepcopy(one.training.state())
    one.training.epoch()
    one.training.epoch()
    after = one.training.state()
    moved = [
        name for name in before["tower"] if not before["tower"][name].equal(after["tower"][name])
    ]
    assert len(moved) > 0.8 * len(before["tower"])
    assert not [name for name in moved if "text" in name]


def test_a_training_goes_on_from_a_state_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    data, folder = striped(), save_dinov2(tmp_path / "dino")
    whole, first, second = (tuner(folder, data, held=held) for held in (0, 1 << 30, 20_000))
    losses = [whole.training.epoch() for _ in range(3)]
    first.training.epoch()
    stream = io.BytesIO()
    torch.save(first.training.state(), stream)
    stream.seek(0)
    second.training.load(torch.load(stream, weights_only=True))
    assert [second.training.epoch(), second.training.epoch()] == losses[1:]
    rows = np.arange(len(data.ids))
    np.testing.assert_array_equal(second.predict(rows), whole.predict(rows))


def test_a_loss_that_is_no_number_ends_the_training(tmp_path: Path) -> None:
    one = tuner(save_dinov2(tmp_path / "dino"), striped(), lr=1e30)
    with pytest.raises(TrainingError, match=r"epoch \d.* (nan|inf)"):
        for _ in range(3):
            one.training.epoch()


def task(**settings: object) -> fine_tune.FineTune:
    return fine_tune.build(fine_tune.Config(data="", **settings))


def test_rates_are_tried_on_val_or_on_a_fifth_of_what_is_drawn() -> None:
    asked = task(fractions=(0.5, 1.0), seeds=(0, 1))
    data = striped(train=40)
    rows = few_shot.readable_rows(data, random_unit(len(data.ids)))
    tries = asked.tries(data, rows)
    assert [(t.draw.fraction, t.draw.seed) for t in tries[::3]] == [(1.0, 0), (0.5, 0), (0.5, 1)]
    train, val = asked.parts(data, rows, tries[3])
    assert (len(train), val.tolist()) == (20, rows["val"].tolist())
    data = striped(train=40, val=0)
    rows = few_shot.readable_rows(data, random_unit(len(data.ids)))
    tries = asked.tries(data, rows)
    train, val = asked.parts(data, rows, tries[0])
    assert (len(train), len(val), len(set(train) & set(val))) == (32, 8, 0)
    assert np.bincount(data.labels[val]).tolist() == [4, 4]
    told = {one: (0.9, -0.2 if one.lr == 1e-4 else -0.3) for one in tries}
    final, accuracies = asked.chosen(told)[0]
    assert (final.lr, final.held_out) == (1e-4, False)
    assert accuracies == {"1e-05": 0.9, "3e-05": 0.9, "0.0001": 0.9}
    assert len(asked.parts(data, rows, final)[0]) == 40


def test_where_nothing_can_be_held_out_the_middle_rate_is_taken() -> None:
    asked = task(fractions=(0.01,), seeds=(0,))
    data = striped(val=0)
    rows = few_shot.readable_rows(data, random_unit(len(data.ids)))
    assert asked.tries(data, rows) == []
    assert asked.chosen({})[0][0].lr == 3e-5


def test_it_is_judged_as_a_probe_is() -> None:
    asked, data = task(), striped(test=4)
    share_EC = np.eye(2)[[0, 1, 0, 0]]
    learnt = [DrawResult(asked.draws()[0], share_EC, {"lr": 1e-4})]
    outcome = asked.score(data, embedded(random_unit(len(data.ids))), learnt)
    assert [score.name for score in outcome.scores] == [
        *("accuracy", "balanced_accuracy", "macro_f1", "auroc")
    ]
    assert outcome.scores[0].value == 0.75
    assert outcome.notes["fits"] == [{"fraction": 1.0, "seed": 0, "lr": 1e-4}]


def test_settings_of_the_training_make_sense() -> None:
    wrong = {"data": "", "fractions": [1.0, 2.0], "tuning.lrs": []}
    with pytest.raises(
        ConfigError, match=r"fractions\.1: .*(?s:.)*tuning\.lrs: .* at least 1 item"
    ):
        configs.build(fine_tune.Config, wrong)
    # Equal, or with the same name of the folder.
    for other in (0.0001, 1.0000001e-4):
        with pytest.raises(ConfigError, match=r"tuning\.lrs: .*different values"):
            configs.build(fine_tune.Config, {"data": "", "tuning.lrs": [1e-4, other]})


def test_a_gpu_that_is_missing_stops_the_run_and_skips_no_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Skipped trainings are rows of a published report.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run = LearningRun(
        data=striped(),
        model=None,  # type: ignore[arg-type]
        images=[],
        workers=BenchmarkWorkers(gpus=1),
        precision="float32",
        place="",
    )
    asked = fine_tune.FineTune(fine_tune.Config(data=""))
    with pytest.raises(TrainingStopped, match=r"workers\.gpus=1"):
        fine_tune_job._tuned(asked, run, FineTuneRun(few_shot.Draw(1.0, 0), 1e-4, held_out=False))
