"""Measure the kernels of packed attention on this GPU, to choose the fastest.

torch has two kernels for ``varlen_attn``: FlashAttention and, on Hopper and Blackwell, cuDNN, which
``sdpa_kernel`` selects. cuDNN's may take less time on the GPU, but torch builds a plan for every
new number of tokens, in about 50 ms for each direction (pytorch PR 191576; the cache key in ATen's
``MHA.cpp`` contains the sizes of the packed tensors). In training, the number of tokens differs
between micro-batches. So it also differs between the rounds of a measurement, and each round runs
as many layers as share a plan.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

ROUNDS = 3
"""Measured rounds of each kernel, after one that is not counted."""

LAYERS = 12
"""Layers that share a plan: those of BERT base."""

KERNELS: dict[str, list[SDPBackend]] = {
    "flash": [SDPBackend.FLASH_ATTENTION],
    # Layers with a window, which cuDNN does not support, use flash.
    "cuDNN": [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION],
}
"""Kernels of ``varlen_attn`` by name. The first is the default."""


def measure(
    lengths: Sequence[int], *, heads: int, head_dim: int, causal: bool, device: torch.device
) -> dict[str, float]:
    """Return seconds of the attention of all layers, forward and backward, by kernel.

    Kernels that do not support the shape on this GPU are left out.

    Args:
        lengths: Tokens of each caption of a micro-batch.
        heads: Attention heads.
        head_dim: Dimensions of a head.
        causal: Whether a token attends only to itself and preceding tokens.
        device: A GPU from Ampere on.
    """
    return time_rounds(
        {
            name: partial(
                _attend, kernels[:1], lengths, heads, head_dim, causal=causal, device=device
            )
            for name, kernels in KERNELS.items()
        },
        synchronize=partial(torch.cuda.synchronize, device),
    )


def time_rounds(
    runs: Mapping[str, Callable[[int], None]],
    *,
    synchronize: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the mean seconds of a round by name, without runs that raise ``RuntimeError``.

    Args:
        runs: Functions of the number of the round.
        synchronize: Waits for the device.
        clock: Returns seconds.
    """
    seconds: dict[str, float] = {}
    for name, run in runs.items():
        try:
            run(0)
            synchronize()
            started = clock()
            for number in range(1, ROUNDS + 1):
                run(number)
            synchronize()
        # Nothing can be computed on the device after it.
        except torch.AcceleratorError:
            raise
        # How torch rejects a shape that a kernel does not support.
        except RuntimeError:
            continue
        seconds[name] = (clock() - started) / ROUNDS
    return seconds


def _attend(
    kernels: list[SDPBackend],
    lengths: Sequence[int],
    heads: int,
    head_dim: int,
    number: int,
    *,
    causal: bool,
    device: torch.device,
) -> None:
    # Another number of tokens in every round.
    tokens_B = torch.tensor([lengths[0] + number, *lengths[1:]], dtype=torch.int32)
    bounds = torch.nn.functional.pad(tokens_B.cumsum(0, dtype=torch.int32), (1, 0)).to(device)
    longest, window = int(tokens_B.max()), (-1, 0 if causal else -1)
    shape = (int(tokens_B.sum()), heads, head_dim)
    query, key, value = (
        torch.zeros(shape, dtype=torch.bfloat16, device=device, requires_grad=True)
        for _ in range(3)
    )
    with sdpa_kernel(kernels):
        for _ in range(LAYERS):
            attended = varlen_attn(
                query, key, value, bounds, bounds, longest, longest, window_size=window
            )
            assert isinstance(attended, torch.Tensor)
            attended.backward(attended.detach())
