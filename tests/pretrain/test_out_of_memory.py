"""A step that runs out of memory: it is repeated in smaller micro-batches, with the same result."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from open_clip.model import CustomTextCLIP
from torch import nn

from biovl.core.artifacts import Draft
from biovl.core.errors import ConfigError, RestartNeeded
from biovl.models.builders.open_clip import Built
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import PretrainConfig, StepConfig
from biovl.pretrain.loop import Trainer
from biovl.pretrain.out_of_memory import read_halvings, read_micro_batch
from biovl.pretrain.run import Callbacks, run
from biovl.pretrain.schedule import Plan
from biovl.pretrain.tower_setup import towers_of as towers_for
from biovl.runtime import ray_train, worker_process
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.workers import Workers, share
from tests.pretrain.groups import in_group
from tests.pretrain.test_loop import CONFIG
from tests.pretrain.test_run import World, batches, config
from tests.pretrain.tiny_clip import gradients_of, pairs, piece, tiny_model, towers_of

Limit = Callable[[nn.Module, int], None]


def forward_limit(tower: nn.Module, most: int) -> None:
    """Let a tower run out of memory in its forward pass, for more than ``most`` pairs."""

    def fail(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if len(inputs[-1]) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")

    tower.register_forward_pre_hook(fail)


def backward_limit(tower: nn.Module, most: int) -> None:
    """Let a tower run out of memory in its backward pass, when some gradients are there."""

    def watch(_: nn.Module, inputs: tuple[torch.Tensor, ...], features_bD: torch.Tensor) -> None:
        if features_bD.requires_grad and len(inputs[-1]) > most:
            first = next(p for p in tower.parameters() if p.requires_grad and p.ndim > 1)
            handle = first.register_hook(lambda grad: fail())
            failing.append(handle)

    def fail() -> None:
        failing.pop().remove()
        raise torch.OutOfMemoryError("CUDA out of memory")

    failing: list[Any] = []
    tower.register_forward_hook(watch)


def trainer(
    model: CustomTextCLIP,
    micro_batch: int | None,
    limit: Callable[[Any], None] = lambda towers: None,
) -> tuple[Trainer, list[tuple[int, int]]]:
    changed = replace(CONFIG, step=StepConfig(micro_batch=micro_batch))
    halved: list[tuple[int, int]] = []
    towers = towers_of(model)
    limit(towers)
    made = Trainer(
        *(towers, model, changed, Plan.of(160, changed.batch, 2)),
        device=torch.device("cpu"),
        workers=Workers(),
        halved=lambda before, after: halved.append((before, after)),
    )
    return made, halved


@pytest.mark.parametrize("limit", [forward_limit, backward_limit])
@pytest.mark.parametrize("tower", ["image", "text"])
def test_the_gradient_is_that_of_a_step_with_enough_memory(limit: Limit, tower: str) -> None:
    enough, tight = (tiny_model().double().train() for _ in range(2))
    first, _ = trainer(enough, None)
    second, halved = trainer(tight, None, lambda towers: limit(getattr(towers, tower), 3))
    losses = [each.compute(pairs(8)) for each in (first, second)]
    assert halved == [(8, 4), (4, 2)]
    assert second.micro_batch == 2
    torch.testing.assert_close(losses[0], losses[1], atol=1e-13, rtol=1e-12)
    expected, actual = gradients_of(enough), gradients_of(tight)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, atol=1e-13, rtol=1e-12, msg=name)


def resnet(dropout: float) -> CustomTextCLIP:
    torch.manual_seed(0)
    model = CustomTextCLIP(
        embed_dim=6,
        vision_cfg={"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8},
        text_cfg={"context_length": 12, "vocab_size": 50, "width": 16, "heads": 2, "layers": 1},
    ).train()
    model.text.ln_final = nn.Sequential(model.text.ln_final, nn.Dropout(dropout))
    return model


def test_the_failed_attempt_leaves_no_trace_in_weights_or_batch_norm() -> None:
    # Bit for bit, with dropout: as if the smaller size had been set from this step on.
    ready, tight = resnet(0.3), resnet(0.3)
    first, _ = trainer(ready, 2)
    second, halved = trainer(tight, 4, lambda towers: backward_limit(towers.text, 2))
    for seed in range(3):
        batch = pairs(4, seed=seed)
        batch = Batch(batch.pixels_BHWC.repeat(1, 4, 4, 1), batch.tokens_T, batch.lengths_B)
        for each in (first, second):
            each.update(each.compute(batch), batch.lengths_B)
    assert halved == [(4, 2)]
    assert "visual.bn1.running_mean" in tight.state_dict()
    for name, value in ready.state_dict().items():
        assert torch.equal(value, tight.state_dict()[name]), name


def test_one_pair_that_does_not_fit_is_an_error_that_names_the_settings() -> None:
    made, halved = trainer(tiny_model(), None, lambda towers: forward_limit(towers.image, 0))
    with pytest.raises(ConfigError, match=r"step\.micro_batch.*step\.checkpoint_activations"):
        made.compute(pairs(8))
    assert halved == [(8, 4), (4, 2), (2, 1)]


@contextlib.contextmanager
def limited(monkeypatch: pytest.MonkeyPatch, most: int) -> Generator[None]:
    """Let the image towers of runs in the block fail above a number of pairs."""

    def limited_towers(built: Built, *settings: Any) -> Any:
        towers = towers_for(built, *settings)
        forward_limit(towers.image, most)
        return towers

    with monkeypatch.context() as patched:
        patched.setattr("biovl.pretrain.run.towers_of", limited_towers)
        yield


def test_the_size_that_fits_is_kept_and_a_changed_setting_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Draft(str(tmp_path))
    with limited(monkeypatch, 1):
        with pytest.raises(KeyboardInterrupt):
            run_until(5, config(tmp_path), World(tmp_path))
        assert read_halvings(draft) == [
            {"step": 1, "before": 4, "after": 2},
            {"step": 1, "before": 2, "after": 1},
        ]
        second = World(tmp_path)
        second.run(config(tmp_path))
    assert read_micro_batch(draft, None) == 1
    # Resumed with what fits: nothing failed again.
    assert len(read_halvings(draft)) == 2
    assert not any("out of memory" in line for line in second.said)
    assert read_micro_batch(draft, 3) == 3
    plain = tmp_path / "enough"
    World(plain).run(config(plain, **{"step.micro_batch": 1}))
    expected = Checkpoints(str(plain)).load(12)["model"]
    actual = Checkpoints(str(tmp_path)).load(12)["model"]
    assert all(torch.equal(actual[name], value) for name, value in expected.items())


def run_until(stop: int, changed: PretrainConfig, world: World) -> None:
    """Run, and interrupt after a number of steps."""

    def interrupted(built: Built, done: int, wait: Callable[[], None]) -> Generator[Batch]:
        for number, batch in enumerate(batches(built, done, wait)):
            if number == stop:
                raise KeyboardInterrupt
            yield batch

    callbacks = Callbacks(interrupted, world.validate, world.said.append, world.preempted, 0.0)
    plan = Plan.of(17, changed.batch, changed.epochs)
    run(changed, plan, 1, callbacks, workers=Workers(), device=torch.device("cpu"))


def attempt(out: str, most: int) -> str:
    """Train on one of several workers, of which the last one lacks memory; return the outcome."""
    workers = Workers.current()
    changed = config(Path(out))

    def own_share(built: Built, done: int, wait: Callable[[], None]) -> Generator[Batch]:
        own = share(4, workers.rank, workers.count)
        for batch in batches(built, done, wait):
            yield piece(batch, own.start, own.stop)

    world = World(Path(out))
    callbacks = Callbacks(own_share, world.validate, world.said.append)
    plan = Plan.of(17, changed.batch, changed.epochs)
    limit = most if workers.rank == workers.count - 1 else 99
    with pytest.MonkeyPatch.context() as monkeypatch, limited(monkeypatch, limit):
        try:
            run(changed, plan, None, callbacks, workers=workers, device=torch.device("cpu"))
        except RestartNeeded:
            return "restart"
        # What gloo raises in the other workers once this one is gone.
        except RuntimeError:
            return "aborted"
    return "done"


def test_workers_of_which_one_runs_out_of_memory_restart_and_end_as_if_none_had(
    tmp_path: Path,
) -> None:
    tight, enough = str(tmp_path / "tight"), str(tmp_path / "enough")
    assert in_group(2, attempt, tight, 1) == ["aborted", "restart"]
    assert read_halvings(Draft(tight)) == [{"step": 1, "before": 2, "after": 1}]
    assert in_group(2, attempt, tight, 1) == ["done", "done"]
    World(Path(enough)).run(config(Path(enough)), every=None)
    expected, actual = (Checkpoints(out).load(12)["model"] for out in (enough, tight))
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, atol=1e-5, rtol=1e-4, msg=name)


def work_after_restarts(arguments: dict[str, Any]) -> dict[str, Any]:
    done = Path(arguments["count"])
    count = int(done.read_text()) + 1
    done.write_text(str(count))
    if count < 6:
        raise RestartNeeded("smaller micro-batches")
    return {"attempts": count}


def test_a_restart_that_is_needed_is_no_failure(tmp_path: Path) -> None:
    count, said = tmp_path / "count", list[str]()
    count.write_text("0")
    arguments = {"count": str(count)}
    returned = ray_train.fit(
        work_after_restarts,
        arguments,
        place=str(tmp_path),
        bounds=(0, 0),
        cpus=1,
        gpus=0,
        restarts=0,
        say=said.append,
    )
    assert returned == {"attempts": 6}
    assert len(said) == 5


def test_a_worker_sets_up_the_allocator_unless_the_user_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current, deprecated = worker_process.ALLOC_CONF
    for given in (current, deprecated):
        monkeypatch.setattr(os, "environ", {given: "max_split_size_mb:64"})
        worker_process.set_gpu_allocator()
        assert os.environ == {given: "max_split_size_mb:64"}
    monkeypatch.setattr(os, "environ", {})
    worker_process.set_gpu_allocator()
    assert list(os.environ) == [current]
    code = "import torch; print(torch._C._accelerator_getAllocatorSettings())"
    # The installed PyTorch reads this variable.
    shown = subprocess.run([sys.executable, "-c", code], env=os.environ, text=True, stdout=-1)
    assert shown.stdout.strip() == os.environ[current]
