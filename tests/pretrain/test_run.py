"""A run of one worker without Ray: what it saves and when, and what it asks of its callbacks."""

import gzip
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError, ConfigError, StorageError, TrainingError
from biovl.core.folders import Folder
from biovl.models import encoder
from biovl.models.builders.open_clip import Built
from biovl.pretrain import scores as scores_of_run
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import PretrainConfig, identity
from biovl.pretrain.journal import Journal
from biovl.pretrain.models import build, weights_of
from biovl.pretrain.profiling import profile_steps
from biovl.pretrain.run import Callbacks, read_failures, run
from biovl.pretrain.schedule import Plan
from biovl.pretrain.scores import (
    best_epoch,
    epoch_to_publish,
    note_name,
    steps_to_keep,
    steps_waiting,
)
from biovl.pretrain.trackers import read_metrics
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.workers import Workers
from tests.pretrain.saving import saves_at_once

MODEL = {
    "name": "open_clip",
    "embed_dim": 8,
    "vision_cfg": {"layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"layers": 1, "width": 16, "heads": 2},
    "image_size": 16,
    "context_length": 8,
}
SCORES = {"image_to_text_recall_at_1": 0.2, "text_to_image_recall_at_1": 0.1, "loss": 1.5}


def config(out: Path, **changes: Any) -> PretrainConfig:
    values = {"corpus": "", "out": str(out), "model": MODEL, "epochs": 3, "batch.pairs": 4}
    return configs.build(PretrainConfig, {**values, "save.every_steps": 100, **changes})


def batches(built: Built, steps_done: int, while_waiting: Callable[[], None]) -> Generator[Batch]:
    for step in range(steps_done, 12):
        rng = np.random.default_rng(step)
        captions = [np.array([49406, *rng.integers(0, 400, 3), 49407]) for _ in range(4)]
        size = built.image_size
        yield Batch.of(rng.integers(0, 255, (4, size, size, 3), np.uint8), captions)


def better_first(epoch: int) -> dict[str, float]:
    return {"loss": 1.5 - epoch, "image_to_text_recall_at_1": 0.2 - epoch / 100}


class World:
    """Callbacks that remember what they were asked for."""

    def __init__(self, out: Path, *, preempted_after: int | None = None) -> None:
        self.said: list[str] = []
        self.validated: list[tuple[int, int]] = []
        self._out, self._preempted_after, self._asked = out, preempted_after, 0

    def validate(self, epoch: int, steps_done: int) -> None:
        assert steps_done in Checkpoints(str(self._out)).steps()
        self.validated.append((epoch, steps_done))
        Draft(str(self._out)).note(note_name(epoch), {**SCORES, **better_first(epoch)})

    def preempted(self) -> bool:
        self._asked += 1
        return self._preempted_after is not None and self._asked >= self._preempted_after

    def run(self, changed: PretrainConfig, every: int | None = 1) -> None:
        callbacks = Callbacks(batches, self.validate, self.said.append, self.preempted, 0.0)
        plan = Plan.of(17, changed.batch, changed.epochs)
        run(changed, plan, every, callbacks, workers=Workers(), device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("image", "changes", "lines"),
    [
        ({"timm_model_name": "test_resnet"}, {"step.micro_batch": 2}, 1),
        ({"timm_model_name": "test_resnet"}, {"step.micro_batch": 4}, 0),
        ({"timm_model_name": "test_resnet"}, {"step.micro_batch": 2, "optim.locked": "image"}, 0),
        (MODEL["vision_cfg"], {"step.micro_batch": 2}, 0),
    ],
)
def test_batch_norm_over_a_micro_batch_is_reported(
    image: dict, changes: dict, lines: int, tmp_path: Path
) -> None:
    world = World(tmp_path)
    # Of 64 pixels the last layer of the ResNet sees more than one.
    model = {**MODEL, "vision_cfg": image, "image_size": 64}
    world.run(config(tmp_path, model=model, **changes), None)
    assert sum("batch norm" in line for line in world.said) == lines


def test_weights_that_are_replaced_before_a_worker_loads_them_are_an_error(tmp_path: Path) -> None:
    given = tmp_path / "given"
    built = build(config(tmp_path).model, with_weights=False)
    encoder.save(given, built, built.model.state_dict())
    changed = config(tmp_path / "out", model={**MODEL, "weights": str(given)})
    Draft.begin(changed.out, "model", {}, weights_of(changed))
    with (given / "README.md").open("w") as card:
        card.write("version 2")
    with pytest.raises(ArtifactError, match="given was replaced while this job was running"):
        World(tmp_path / "out").run(changed, None)


def test_every_epoch_is_saved_and_validated_and_the_last_are_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run(config(tmp_path))
    assert world.validated == [(0, 4), (1, 8), (2, 12)]
    # The last two, and the first epoch, which is the best.
    assert Checkpoints(str(tmp_path)).steps() == [4, 8, 12]
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == list(range(1, 13))
    assert len([line for line in world.said if "loss" in line]) == 12


def test_a_run_without_validation_keeps_its_last_checkpoints(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.run(config(tmp_path, **{"save.every_steps": 3, "save.keep_last": 1}), every=None)
    assert world.validated == []
    assert Checkpoints(str(tmp_path)).steps() == [12]


def test_a_node_about_to_go_makes_a_checkpoint_once(tmp_path: Path) -> None:
    world = World(tmp_path, preempted_after=6)
    world.run(config(tmp_path, **{"save.keep_last": 9}))
    assert Checkpoints(str(tmp_path)).steps() == [4, 6, 8, 12]
    assert sum("step 6:" in line for line in world.said) == 1


def test_a_node_about_to_go_makes_a_checkpoint_while_no_batch_comes(tmp_path: Path) -> None:
    world, saved = World(tmp_path, preempted_after=7), list[list[int]]()

    def stalled(built: Built, steps_done: int, wait: Callable[[], None]) -> Generator[Batch]:
        for number, batch in enumerate(batches(built, steps_done, wait)):
            if number == 7:
                wait()
                saved.append(Checkpoints(str(tmp_path)).steps())
            yield batch

    callbacks = Callbacks(stalled, world.validate, world.said.append, world.preempted)
    changed = config(tmp_path, **{"save.keep_last": 9})
    plan = Plan.of(17, changed.batch, changed.epochs)
    run(changed, plan, None, callbacks, workers=Workers(), device=torch.device("cpu"))
    # The step whose batch had come is not done: its update waits for the next batch.
    assert saved == [[4, 6]]


def test_a_checkpoint_is_made_when_the_number_of_workers_changes(tmp_path: Path) -> None:
    world, asked, answered = World(tmp_path), iter([False, False, True] + [False] * 9), []
    changed = config(tmp_path, **{"save.keep_last": 9})
    callbacks = Callbacks(
        batches,
        world.validate,
        world.said.append,
        save_requested=lambda: next(asked),
        saved=lambda: answered.append(Checkpoints(str(tmp_path)).steps()),
    )
    plan = Plan.of(17, changed.batch, changed.epochs)
    run(changed, plan, None, callbacks, workers=Workers(), device=torch.device("cpu"))
    # It was written before that was said.
    assert answered == [[3]]
    assert Checkpoints(str(tmp_path)).steps() == [3, 4, 8, 12]


def test_a_save_that_is_due_does_not_wait_for_the_one_before(tmp_path: Path) -> None:
    world, taken = World(tmp_path), threading.Event()

    def slow(epoch: int, steps_done: int) -> None:
        # In the writing thread, as if storage needed two more steps.
        if steps_done == 4:
            assert taken.wait(60)

    def signalling(built: Built, steps_done: int, wait: Callable[[], None]) -> Generator[Batch]:
        for number, batch in enumerate(batches(built, steps_done, wait)):
            # While the eighth batch is fetched, seven steps are being taken.
            if number == 7:
                taken.set()
            yield batch

    changed = config(tmp_path, **{"save.every_steps": 5, "save.keep_last": 9})
    plan = Plan.of(17, changed.batch, changed.epochs)
    callbacks = Callbacks(signalling, slow, world.said.append)
    run(changed, plan, 1, callbacks, workers=Workers(), device=torch.device("cpu"))
    steps = Checkpoints(str(tmp_path)).steps()
    # Due after step 5, and made after step 7, or with the end of the epoch, which waits for it.
    assert steps[:1] == [4]
    assert not {5, 6} & set(steps)
    assert {8, 12} <= set(steps)
    assert sum("postponed" in line for line in world.said if "step 5 " in line) == 1


def test_the_history_is_of_every_so_many_steps_or_epochs_and_the_end(tmp_path: Path) -> None:
    for every, expected in ((5, [5, 10, 12]), ("epoch", [4, 8, 12])):
        out = tmp_path / str(every)
        World(out).run(config(out, **{"save.keep_every": every, "save.keep_last": 1}))
        names = sorted(path.name for path in (out / "checkpoints").iterdir())
        assert names == [f"{steps:09d}.pt" for steps in expected]
        assert Checkpoints(str(out)).load(expected[0])["steps_done"] == expected[0]


def test_a_full_disk_ends_the_run_at_the_next_step_and_with_room_it_resumes(
    mount_small_disk: Callable[[Path, str], None], tmp_path: Path
) -> None:
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "model"
    World(undisturbed).run(config(undisturbed), every=None)
    # Half of a checkpoint of 10 MB.
    mount_small_disk(out / ".draft", "5m")

    def attempt() -> None:
        world, changed = World(out), config(out)
        callbacks = Callbacks(written_in_step_5, world.validate, world.said.append)
        plan = Plan.of(17, changed.batch, changed.epochs)
        run(changed, plan, None, callbacks, workers=Workers(), device=torch.device("cpu"))

    def written_in_step_5(
        built: Built, steps_done: int, wait: Callable[[], None]
    ) -> Generator[Batch]:
        for number, batch in enumerate(batches(built, steps_done, wait)):
            if steps_done + number == 5:
                for thread in threading.enumerate():
                    if thread.name == "checkpoint":
                        thread.join()
            yield batch

    with pytest.raises(StorageError, match=r"\bdisk\b"):
        attempt()
    # The first epoch ends after step 4; without a look the second one, after step 8, would tell.
    assert [row["step"] for row in read_metrics(out / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    assert Checkpoints(str(out)).steps() == []
    assert list(out.rglob("*.pt")) == []
    subprocess.run(["mount", "-o", "remount,size=100m", str(out / ".draft")], check=True)
    attempt()
    again, expected = (Checkpoints(str(place)).load(12)["model"] for place in (out, undisturbed))
    assert all(torch.equal(again[name], value) for name, value in expected.items())


def test_why_a_run_was_ended_is_noted(tmp_path: Path) -> None:
    with pytest.raises(TrainingError):
        World(tmp_path).run(config(tmp_path, **{"optim.peak_lr": 1e30, "optim.warmup_steps": 0}))
    (ended,) = read_failures(Draft(str(tmp_path)))
    assert "optim.peak_lr" in ended["reason"]
    assert ended["step"] < 12


def test_an_epoch_that_was_not_validated_before_a_kill_is_validated_after_it(
    tmp_path: Path,
) -> None:
    first = World(tmp_path)
    first.run(config(tmp_path))
    note = tmp_path / ".draft" / f"{note_name(1)}.json"
    note.unlink()
    second = World(tmp_path)
    second.run(config(tmp_path))
    assert second.validated == [(1, 8)]
    assert len(second.said) == 1
    assert "12 of 12" in second.said[0]


def test_a_corrupt_checkpoint_is_skipped_for_the_one_before(tmp_path: Path) -> None:
    with saves_at_once():
        World(tmp_path).run(
            config(tmp_path, **{"save.every_steps": 3, "save.keep_last": 9}), every=None
        )
    undisturbed = Checkpoints(str(tmp_path)).load(12)["model"]
    *_, intact, third, second, last = Checkpoints(str(tmp_path)).steps()
    for steps_done, place in ((last, 0.2), (second, 0.5), (third, 0.99)):
        damaged = tmp_path / ".draft" / "checkpoints" / f"{steps_done:09d}.pt"
        data = bytearray(damaged.read_bytes())
        data[int(place * len(data))] ^= 8
        damaged.write_bytes(data)
    world = World(tmp_path)
    world.run(config(tmp_path), every=None)
    for steps_done, line in zip((last, second, third), world.said, strict=False):
        assert f"{steps_done:09d}.pt" in line
    assert Checkpoints(str(tmp_path)).corrupt() == [third, second, last]
    assert f"{intact} of 12" in world.said[3]
    again = Checkpoints(str(tmp_path)).load(12)["model"]
    assert all(torch.equal(again[name], value) for name, value in undisturbed.items())


def test_an_epoch_whose_checkpoint_is_made_again_is_validated_from_that(tmp_path: Path) -> None:
    World(tmp_path).run(config(tmp_path))
    (tmp_path / ".draft" / f"{note_name(2)}.json").unlink()
    (tmp_path / ".draft" / "checkpoints" / "000000012.pt").write_bytes(b"damaged")
    world = World(tmp_path)
    world.run(config(tmp_path))
    assert world.validated == [(2, 12)]
    assert Checkpoints(str(tmp_path)).is_whole(12)


def test_a_run_whose_checkpoints_cannot_be_read_is_not_begun_anew(tmp_path: Path) -> None:
    World(tmp_path).run(config(tmp_path), every=None)
    for path in (tmp_path / ".draft" / "checkpoints").iterdir():
        path.write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"\b2 checkpoints .*\.draft/checkpoints"):
        World(tmp_path).run(config(tmp_path), every=None)


def test_validation_scores_reach_the_trackers_once(tmp_path: Path) -> None:
    World(tmp_path).run(config(tmp_path))
    for _ in range(2):
        # What whoever publishes the run does: the last epoch is judged when training is over.
        with Journal(config(tmp_path), 12) as journal:
            journal.add_scores(12)
    curves = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    # Sorted: files of one second are read by the number of their writer, the tenth before the ninth.
    values = sorted(event.value for event in curves.Scalars("val/loss"))
    assert values == [-0.5, 0.5, 1.5]
    assert len(curves.Scalars("train/loss")) == 12


def test_the_best_epoch_has_the_highest_recalls_at_1_and_of_equals_is_the_first() -> None:
    def scores(image: float, text: float) -> dict[str, float]:
        return {"image_to_text_recall_at_1": image, "text_to_image_recall_at_1": text}

    assert best_epoch({}) is None
    assert best_epoch({0: scores(0.1, 0.2), 3: scores(0.3, 0.2), 5: scores(0.1, 0.4)}) == 3
    # Few pairs have few recalls: of equal ones the loss tells.
    losses = {0: {**scores(0, 0), "loss": 3.0}, 1: {**scores(0, 0), "loss": 2.0}}
    assert best_epoch({**losses, 2: {**scores(0, 0), "loss": 2.5}}) == 1


def test_a_run_publishes_its_best_epoch_by_default_and_its_last_if_told() -> None:
    scores = {
        epoch: {"image_to_text_recall_at_1": recall, "text_to_image_recall_at_1": recall}
        for epoch, recall in enumerate((0.1, 0.4, 0.05))
    }
    by_default = PretrainConfig.__dataclass_fields__["publish"].default
    assert epoch_to_publish(scores, by_default, 3) == 1
    assert epoch_to_publish(scores, "last", 3) == 2
    assert epoch_to_publish({}, by_default, 3) == 2


def test_what_waits_for_validation_and_the_best_are_kept(tmp_path: Path) -> None:
    draft, plan = Draft(str(tmp_path)), Plan([(4, 10)] * 5)
    draft.note(note_name(1), SCORES)
    assert steps_waiting(draft, plan, every=2) == {40: 3, 50: 4}
    assert steps_to_keep(draft, plan, every=2) == [40, 50, 20]


def test_an_epoch_that_is_judged_while_others_are_cleared_away_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, plan = Draft(str(tmp_path)), Plan([(4, 10)] * 3)
    draft.note(note_name(0), SCORES)
    read = scores_of_run.read_scores

    def read_a_moment_before(asked: Draft) -> dict[int, dict[str, Any]]:
        found = read(asked)
        asked.note(note_name(1), {**SCORES, "image_to_text_recall_at_1": 0.9})
        return found

    monkeypatch.setattr(scores_of_run, "read_scores", read_a_moment_before)
    assert 20 in steps_to_keep(draft, plan, every=1)


@pytest.mark.parametrize(
    "name", ["validation.every_epochs", "validation.pairs", "trouble.stuck_minutes"]
)
def test_a_setting_without_meaning_is_refused_before_the_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r".*")):
        config(tmp_path, **{name: -1})


def events(trace: Path) -> Counter[str]:
    """Return how often each event of a trace occurs, by name."""
    read = json.loads(gzip.decompress(trace.read_bytes()))
    return Counter(event["name"] for event in read["traceEvents"])


def test_a_trace_has_the_operations_of_its_steps_and_changes_no_weights(tmp_path: Path) -> None:
    World(tmp_path / "plain").run(config(tmp_path / "plain"), every=None)
    trace = tmp_path / "model" / "profile" / "steps-000006-000009.json.gz"
    trace.parent.mkdir(parents=True)
    trace.write_bytes(b"half a file of an earlier process")
    world = World(tmp_path / "model")
    world.run(config(tmp_path / "model", profile=4), every=None)
    counts = events(trace)
    assert counts["Optimizer.step#AdamW.step"] == 4
    assert counts["aten::mm"] > counts["aten::addmm"] > 0
    assert sum(str(trace) in line for line in world.said) == 1
    plain, profiled = (Checkpoints(str(tmp_path / name)).load(12) for name in ("plain", "model"))
    assert all(torch.equal(profiled["model"][k], v) for k, v in plain["model"].items())


def test_a_run_profiles_again_when_it_resumes_and_has_the_steps_for_it(tmp_path: Path) -> None:
    def resume(after: int) -> list[str]:
        for path in (tmp_path / ".draft" / "checkpoints").glob("*.pt"):
            if int(path.stem) > after:
                path.unlink()
        World(tmp_path).run(config(tmp_path, profile=9, **{"save.keep_last": 9}), every=None)
        assert Checkpoints(str(tmp_path)).is_whole(12)
        return sorted(path.name for path in (tmp_path / "profile").iterdir())

    World(tmp_path).run(config(tmp_path, **{"save.keep_last": 9}), every=None)
    (tmp_path / "profile").mkdir()
    # Nothing is left to do; then fewer steps than those before a trace; then some, but not nine.
    assert resume(12) == resume(8) == []
    (name,) = resume(4)
    assert name == "steps-000010-000012.json.gz"
    assert events(tmp_path / "profile" / name)["Optimizer.step#AdamW.step"] == 3


def test_an_error_in_profiled_steps_writes_no_trace_and_the_next_run_can_profile(
    tmp_path: Path,
) -> None:
    def run_steps(count: int) -> None:
        folder, device = Folder(str(tmp_path)), torch.device("cpu")
        with profile_steps(2, folder, device, lambda line: None) as after_step:
            for step in range(1, count + 1):
                torch.ones(2, 2) @ torch.ones(2, 2)
                after_step(step)
            if count < 7:
                raise TrainingError("diverged")

    with pytest.raises(TrainingError):
        run_steps(6)
    assert not (tmp_path / "profile").exists()
    run_steps(9)
    assert events(tmp_path / "profile" / "steps-000006-000007.json.gz")["aten::mm"] == 2


def test_profiling_is_no_other_run_and_its_steps_are_bounded(tmp_path: Path) -> None:
    plain, profiled = config(tmp_path), config(tmp_path, profile=100)
    assert identity(configs.to_plain(plain))[0] == identity(configs.to_plain(profiled))[0]
    for steps in (-1, 101):
        with pytest.raises(ConfigError):
            config(tmp_path, profile=steps)
