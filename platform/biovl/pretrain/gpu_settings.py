"""Settings of a step that depend on the GPU: micro-batch, compilation, kernel of attention."""

import math
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch

from biovl.models.towers import TextTower
from biovl.models.towers.attention import allow_kernels, has_varlen_kernel
from biovl.models.towers.kernels import KERNELS, measure
from biovl.pretrain import hardware, memory
from biovl.pretrain.config import PretrainConfig, StepConfig
from biovl.pretrain.estimate import StepCost, repays_compilation
from biovl.pretrain.flops import ForwardCost
from biovl.pretrain.hardware import A100_80
from biovl.pretrain.loop import uses_bf16
from biovl.pretrain.mixture import reads_text_alone
from biovl.pretrain.models import describe
from biovl.pretrain.schedule import Plan

FIRST_COMPILED = (8, 0)
"""Lowest compute capability that ``step.compile=auto`` compiles for: Ampere. Published gains are of
such GPUs, and earlier ones have neither bf16 nor a kernel for packed captions."""

SAMPLE = 10_000
"""Captions whose lengths represent those of a corpus: the error of their mean is below 1 %."""


@dataclass(frozen=True)
class Device:
    """Properties of a worker's device that determine the automatic settings of a step."""

    kind: str
    """``cpu`` or ``cuda``."""

    capability: tuple[int, int] = (0, 0)
    """Compute capability of a GPU."""

    memory_bytes: float = 0.0
    """Memory of a GPU that the worker may use."""

    name: str = ""
    """The driver's name of a GPU."""

    bf16: bool = False
    """Whether matrix products run in bfloat16."""

    @classmethod
    def of(cls, config: PretrainConfig, device: torch.device) -> "Device":
        """Return the properties of a worker's device."""
        if device.type == "cpu":
            return cls("cpu")
        _, total = torch.cuda.mem_get_info(device)
        return cls(
            device.type,
            torch.cuda.get_device_capability(device),
            # Workers with a part of a GPU share its memory.
            total * min(1.0, config.workers.gpus or 1.0),
            torch.cuda.get_device_name(device),
            uses_bf16(config.step.precision, device),
        )


def choose_step(
    config: PretrainConfig,
    cost: ForwardCost,
    plan: Plan,
    lengths_N: np.ndarray,
    *,
    context: int,
    steps_done: int,
    device: Device,
    workers: int,
    say: Callable[[str], None],
) -> StepConfig:
    """Return the settings of a step with concrete values for the automatic ones.

    On CPUs, automatic settings compile nothing and use a single micro-batch per worker.

    Args:
        config: Configuration of the run.
        cost: Operations of its towers.
        plan: Its steps.
        lengths_N: Tokens of captions of train with start and end, or of a sample. Shape [N].
        context: Context length of the model, to which captions are truncated.
        steps_done: Steps that a resumed run has done.
        device: Properties of the worker's device.
        workers: Number of workers.
        say: Called with a line for each choice.
    """
    step, lengths_N = config.step, np.minimum(lengths_N, context)
    if not reads_text_alone(config):
        # Lengths of other texts are not stored, and a step must fit in memory.
        lengths_N = np.full_like(lengths_N, context)
    if step.compile == "auto":
        # Rounding differs from eager mode, and a resumed run may be too short to compile.
        is_compiled = not config.deterministic and _repays(
            cost, plan, lengths_N, steps_done=steps_done, device=device, workers=workers
        )
        step = replace(step, compile=is_compiled)
        if is_compiled:
            say("step.compile: blocks are compiled in the first step, which takes some minutes")
    if step.micro_batch is None and device.kind == "cuda":
        micro_batch = _fitting_pairs(
            config, plan, lengths_N, device=device, workers=workers, say=say
        )
        step = replace(step, micro_batch=micro_batch)
    return step


def _repays(
    cost: ForwardCost,
    plan: Plan,
    lengths_N: np.ndarray,
    *,
    steps_done: int,
    device: Device,
    workers: int,
) -> bool:
    """Return whether the GPU gains from compilation, and the rest of the run repays it."""
    if device.kind != "cuda" or device.capability < FIRST_COMPILED:
        return False
    known = hardware.find_accelerator(device.name)
    if known is None or known.utilisation(compiled=False) is None:
        # Between an L4, which takes longer, and newer GPUs.
        known = A100_80
    share = known.utilisation(compiled=False)
    assert share is not None
    pairs = plan.pairs - plan.pairs_before(steps_done)
    flops = float(cost.training(lengths_N).mean()) * pairs
    rate = (known.peak_flops("bf16" if device.bf16 else "fp32") or 0) * share
    return repays_compilation(flops / (workers * rate) / 3600)


def _fitting_pairs(
    config: PretrainConfig,
    plan: Plan,
    lengths_N: np.ndarray,
    *,
    device: Device,
    workers: int,
    say: Callable[[str], None],
) -> int | None:
    """Return the pairs of a micro-batch that fit in every step; None for all of a worker."""
    batch = max(size for size, _ in plan.epochs)
    local = math.ceil(batch / workers)
    arguments = config, lengths_N, batch, workers, device
    if torch.cuda.is_initialized():
        # The estimate replaces parts of PyTorch by a fake GPU, which must not meet the real one.
        with ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn"), initializer=hide_gpus
        ) as process:
            found = process.submit(estimate_pairs, *arguments).result()
    else:
        found = estimate_pairs(*arguments)
    gigabytes = f"the {device.memory_bytes / 1e9:.0f} GB of a worker, by the memory estimate"
    if found is None:
        say(
            f"step.micro_batch: not even one pair fits in {gigabytes}; step.checkpoint_activations="
            "true, a lower step.loss_tile or model.context_length takes less"
        )
        return 1
    if found >= local:
        say(f"step.micro_batch: all {local:,} pairs of a worker at a time fit in {gigabytes}")
        return None
    say(f"step.micro_batch: {found:,} of a worker's {local:,} pairs at a time fit in {gigabytes}")
    return found


def hide_gpus() -> None:
    """Hide all GPUs from this process; has no effect after its first use of CUDA."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def estimate_pairs(
    config: PretrainConfig, lengths_N: np.ndarray, batch: int, workers: int, device: Device
) -> int | None:
    """Return how many pairs per forward pass fit in a device's memory; None if not even one does.

    Args:
        config: Configuration of the run.
        lengths_N: Numbers of tokens of the train captions, or of a sample of them. Shape [N].
        batch: Pairs of all workers in the largest step.
        workers: Number of workers.
        device: Properties of the worker's device.
    """
    described = describe(config.model, config.optim)
    cost = StepCost(config, memory.model_info(described, config.optim), lengths_N)
    local = math.ceil(batch / workers)
    return cost.largest_micro_batch(batch, local, device.memory_bytes, autocast=device.bf16)


def choose_attention(
    text: TextTower,
    lengths_N: np.ndarray,
    pairs: int,
    *,
    deterministic: bool,
    bf16: bool,
    device: torch.device,
    say: Callable[[str], None],
) -> None:
    """Select the kernel of packed attention by measuring those that this GPU has.

    Args:
        text: The text tower.
        lengths_N: Tokens of captions, or of a sample. Shape [N], N >= 1.
        pairs: Captions of a micro-batch.
        deterministic: Whether to keep the default kernel without measuring.
        bf16: Whether towers run in bfloat16.
        device: The worker's device.
        say: Called with a line about the choice.
    """
    name = next(iter(KERNELS))
    allow_kernels(KERNELS[name])
    if text.compute != "packed" or device.type != "cuda":
        return
    if not has_varlen_kernel(device, torch.bfloat16 if bf16 else torch.float32):
        say(
            "step.text=packed: attention is computed in padded chunks of captions of similar "
            "length, as this GPU has no kernel for packed captions in this precision"
        )
        return
    if deterministic:
        return
    heads, head_dim, causal = text.attention_shape
    lengths = np.resize(np.minimum(lengths_N, text.context - 1), pairs).tolist()
    seconds = measure(lengths, heads=heads, head_dim=head_dim, causal=causal, device=device)
    name = min(seconds, key=seconds.__getitem__, default=name)
    allow_kernels(KERNELS[name])
    times = ", ".join(f"{each} {1000 * value:.1f} ms" for each, value in seconds.items())
    say(f"attention of packed captions: {name} (all layers of a micro-batch: {times})")
