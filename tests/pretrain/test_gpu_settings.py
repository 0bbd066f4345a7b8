"""Settings chosen for a GPU, from its properties alone; and none on a CPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.models.towers import TextTower, attention, kernels
from biovl.pretrain import config as pretrain_config
from biovl.pretrain import flops, gpu_settings
from biovl.pretrain.config import PretrainConfig, StepConfig
from biovl.pretrain.gpu_settings import Device, choose_attention, choose_step
from biovl.pretrain.memory import ModelInfo, memory
from biovl.pretrain.models import describe
from biovl.pretrain.schedule import Plan

H100 = Device("cuda", (9, 0), 80e9, "NVIDIA H100 80GB HBM3", bf16=True)
LENGTHS = np.arange(20, 80)


@pytest.fixture(scope="module")
def described():
    values = configs.recipe_settings(pretrain_config.RECIPES["tiny"]())
    return describe(
        configs.build(PretrainConfig, {**values, "corpus": "corpus", "out": "out"}).model
    )


def config(**changes) -> PretrainConfig:
    values = configs.recipe_settings(pretrain_config.RECIPES["tiny"]())
    return configs.build(
        PretrainConfig, {**values, "corpus": "corpus", "out": "out", "workers.count": 1, **changes}
    )


def chosen(described, run, device, *, pairs=10_000_000, workers=1, steps_done=0, lengths=LENGTHS):
    lines = []
    step = choose_step(
        run,
        flops.forward_cost(described.model),
        Plan.of(pairs, run.batch, run.epochs),
        lengths,
        context=described.context_length,
        steps_done=steps_done,
        device=device,
        workers=workers,
        say=lines.append,
    )
    return step, lines


def test_on_a_cpu_nothing_changes(described) -> None:
    step, lines = chosen(described, config(), Device.of(config(), torch.device("cpu")))
    assert step == replace(StepConfig(), compile=False)
    assert lines == []


def test_a_long_run_on_a_gpu_is_compiled_and_a_short_one_is_not(described) -> None:
    run = config(**{"epochs": 500, "step.micro_batch": 8})
    plan = Plan.of(10_000_000, run.batch, run.epochs)
    for device, steps_done, is_compiled in [
        (H100, 0, True),
        (replace(H100, name="a GPU of next year"), 0, True),
        # Resumed shortly before its end.
        (H100, plan.steps - 10, False),
        (H100, plan.steps, False),
        (replace(H100, capability=(7, 0)), 0, False),
    ]:
        assert chosen(described, run, device, steps_done=steps_done)[0].compile is is_compiled
    assert chosen(described, run, H100, pairs=1_000)[0].compile is False
    assert chosen(described, replace(run, deterministic=True), H100)[0].compile is False


def test_captions_longer_than_the_context_do_not_make_a_run_longer(described) -> None:
    # Of captions that fill the context, half an hour is 112 epochs.
    run = config(**{"epochs": 20, "step.micro_batch": 8})
    for lengths in (np.full(9, 77), np.full(9, 100_000)):
        assert chosen(described, run, H100, lengths=lengths)[0].compile is False


@pytest.mark.parametrize("given", [True, False])
def test_what_is_set_is_kept(described, given) -> None:
    run = config(**{"step.compile": given, "step.micro_batch": 5, "epochs": 1})
    step, lines = chosen(described, run, H100, pairs=1_000)
    assert (step.compile, step.micro_batch, lines) == (given, 5, [])


def test_a_batch_that_fits_goes_at_once(described) -> None:
    step, lines = chosen(described, config(**{"epochs": 1}), H100, pairs=1_000)
    assert step.micro_batch is None
    assert len(lines) == 1


def test_a_micro_batch_fits_the_memory_of_the_gpu(described) -> None:
    run = config(**{"batch.pairs": 65_536, "epochs": 1})
    info = gpu_settings.memory.model_info(described)
    sizes = []
    for gigabytes in (4, 8):
        device = replace(H100, memory_bytes=gigabytes * 1e9)
        step, (line,) = chosen(described, run, device, pairs=100_000, workers=2)
        assert step.micro_batch % 8 == 0
        assert f"{step.micro_batch:,}" in line
        assert held(info, step.micro_batch).total <= 0.92 * gigabytes * 1e9
        # Of the fewest equal parts of a worker's share.
        parts = -(-32_768 // step.micro_batch)
        assert held(info, 32_768 // (parts - 1) + 8).total > 0.92 * gigabytes * 1e9 * 0.9
        sizes.append(step.micro_batch)
    assert sizes[0] < sizes[1] < 32_768


def test_texts_of_unknown_lengths_fill_the_context(described) -> None:
    run = config(**{"batch.pairs": 65_536, "epochs": 1})
    other = replace(run, data=replace(run.data, text={"text": 0.5, "long_caption": 0.5}))
    device = replace(H100, memory_bytes=4e9)
    steps = [
        chosen(described, run_of, device, pairs=100_000, workers=2, lengths=np.full(9, tokens))[0]
        for run_of, tokens in ((run, 20), (run, 77), (other, 20))
    ]
    assert steps[0].micro_batch > steps[1].micro_batch == steps[2].micro_batch


def held(info: ModelInfo, micro_batch: int):
    return memory(
        info, batch=65_536, local=32_768, micro_batch=micro_batch, tokens=float(LENGTHS.mean()),
        tile=1_024, compute="packed", autocast=True, checkpointed=False,
    )  # fmt: skip


def test_memory_is_estimated_for_the_optimizer_of_the_run(described, monkeypatch) -> None:
    monkeypatch.setattr(
        gpu_settings.StepCost,
        "largest_micro_batch",
        lambda cost, *rest, **_: cost.info.optimizer_bytes,
    )
    adamw, lion = (
        gpu_settings.estimate_pairs(config(**{"optim.name": name}), LENGTHS, 32, 1, H100)
        for name in ("adamw", "timm/lion")
    )
    # Two running averages, and one.
    assert lion == adamw / 2


def test_a_gpu_that_is_too_small_is_reported_and_tried(described) -> None:
    device = replace(H100, memory_bytes=1e6)
    step, (line,) = chosen(described, config(**{"epochs": 1}), device, pairs=1_000)
    assert step.micro_batch == 1
    assert "checkpoint_activations" in line


@pytest.mark.slow
def test_a_process_with_a_gpu_estimates_its_memory_in_one_without(described, monkeypatch) -> None:
    run = config(**{"batch.pairs": 65_536, "epochs": 1})
    device = replace(H100, memory_bytes=4e9)
    expected = chosen(described, run, device, pairs=100_000)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert chosen(described, run, device, pairs=100_000) == expected


def test_workers_that_share_a_gpu_share_its_memory(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1e9, 80e9))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: H100.name)
    half = Device.of(config(**{"workers.gpus": 0.5}), torch.device("cuda"))
    assert half == replace(H100, memory_bytes=40e9)
    assert Device.of(config(**{"workers.gpus": 1}), torch.device("cuda")) == H100


def test_several_workers_do_not_share_a_gpu() -> None:
    with pytest.raises(ConfigError, match="whole GPUs"):
        config(**{"workers.gpus": 0.5, "workers.count": 2})


def test_a_kernel_that_breaks_the_device_is_not_taken_for_one_that_rejects_a_shape() -> None:
    def reject(number: int) -> None:
        raise RuntimeError("no such shape")

    def fault(number: int) -> None:
        raise torch.AcceleratorError("an illegal memory access was encountered")

    assert kernels.time_rounds({"cudnn": reject}, synchronize=lambda: None) == {}
    with pytest.raises(torch.AcceleratorError):
        kernels.time_rounds({"cudnn": fault}, synchronize=lambda: None)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_kernels_are_timed_with_other_sizes_in_each_round() -> None:
    clock, numbers = Clock(), []

    def with_a_plan_for_each_size(number: int) -> None:
        numbers.append(number)
        clock.now += 50.0

    def unsupported(number: int) -> None:
        raise RuntimeError("constraints are not satisfied")

    def steady(number: int) -> None:
        # Slow at first, as all kernels are.
        clock.now += 2.0 if number else 100.0

    seconds = kernels.time_rounds(
        {"plans": with_a_plan_for_each_size, "none": unsupported, "steady": steady},
        synchronize=lambda: None,
        clock=clock,
    )
    assert seconds == {"plans": 50.0, "steady": 2.0}
    assert len(set(numbers)) == len(numbers) == 1 + kernels.ROUNDS


@pytest.fixture
def gpu(monkeypatch, described):
    """Choose attention as on a GPU on which kernels take the given seconds; return the line."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    before = attention._allowed

    def choose(seconds, *, deterministic=False, bf16=True):
        shapes, lines = [], []

        def measure(lengths, **shape):
            shapes.append((len(lengths), max(lengths), shape))
            return seconds

        monkeypatch.setattr(gpu_settings, "measure", measure)
        choose_attention(
            TextTower(described.model.text, "packed", 77), LENGTHS, 100, bf16=bf16,
            deterministic=deterministic, device=torch.device("cuda"), say=lines.append,
        )  # fmt: skip
        return shapes, lines

    yield choose
    attention.allow_kernels(before)


def test_the_faster_kernel_is_used(gpu) -> None:
    shapes, (line,) = gpu({"flash": 0.002, "cuDNN": 0.001})
    assert attention._allowed == kernels.KERNELS["cuDNN"]
    assert "cuDNN" in line
    (count, longest, shape) = shapes[0]
    assert (count, longest) == (100, 76)
    assert (shape["heads"], shape["head_dim"], shape["causal"]) == (2, 32, True)
    gpu({"flash": 0.001, "cuDNN": 0.002})
    assert attention._allowed == kernels.KERNELS["flash"]
    # None could be measured.
    gpu({"cuDNN": 0.001})
    gpu({})
    assert attention._allowed == kernels.KERNELS["flash"]


def test_a_deterministic_run_keeps_flash(gpu) -> None:
    assert gpu({"cuDNN": 0.001}, deterministic=True) == ([], [])
    assert attention._allowed == kernels.KERNELS["flash"]


def test_a_gpu_without_a_kernel_for_packed_captions_is_reported(gpu) -> None:
    shapes, lines = gpu({}, bf16=False)
    assert shapes == []
    assert len(lines) == 1
