"""A CUDA device without a GPU: training code runs on it with real shapes and dtypes, without data.

Tensors on ``cuda`` are fake (``FakeTensorMode``), tensors on the host are real. Operations are
dispatched, cast by autocast and differentiated as on an A100, and the memory of all results is
recorded while they are alive. Nothing is computed.
"""

import contextlib
import heapq
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

CAPABILITY = (8, 0)
"""Compute capability of the fake device: A100, the first with flash attention."""


class Trace(TorchDispatchMode):
    """Operations and memory of the fake device."""

    def __init__(self) -> None:
        untyped: Any = super().__init__
        untyped()
        self.calls: Counter[str] = Counter()
        """Number of calls of each operation on the device, by its name."""

        self.alive = 0
        """Bytes of all tensors on the device."""

        self.peak = 0
        """Maximum of ``alive``."""

        self._storages: dict[int, weakref.ref[Any]] = {}

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True: ``torch.compile`` works within this mode."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, on real data if it is on the host."""
        # Nothing can be pinned without a driver.
        kwargs = {name: value for name, value in (kwargs or {}).items() if name != "pin_memory"}
        if func is torch.ops.prim.device.default:
            return func(*args, **kwargs)
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            # A loss or a norm, for which 0 is finite.
            return 0
        if _on_host(args, kwargs):
            with unset_fake_temporarily():
                return func(*args, **kwargs)
        result = func(*args, **kwargs)
        self.calls[func.name()] += 1
        for value in tree_iter(result):
            if isinstance(value, FakeTensor) and value.device.type == "cuda":
                self.record(value)
        return result

    def record(self, tensor: Tensor) -> None:
        """Count a tensor as alive until its storage is freed."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return
        size = storage.nbytes()

        def free(_: Any) -> None:
            del self._storages[key]
            self.alive -= size

        self._storages[key] = weakref.ref(storage, free)
        self.alive += size
        self.peak = max(self.peak, self.alive)


def _on_host(args: Any, kwargs: Mapping[str, Any]) -> bool:
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return False
    return not any(isinstance(value, FakeTensor) for value in tree_iter((args, kwargs)))


@contextlib.contextmanager
def fake_gpu() -> Iterator[Trace]:
    """Make ``cuda`` a fake device, and yield the trace of what runs on it."""
    patches = [
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.cuda, "is_bf16_supported", lambda *_: True),
        (torch.cuda, "get_device_capability", lambda *_: CAPABILITY),
        (F, "scaled_dot_product_attention", _attention),
        (torch.autograd, "backward", _backward),
        (Tensor, "backward", _backward),
        (Tensor, "pin_memory", lambda tensor: tensor),
        (torch.cuda, "Event", _Event),
        (nn.Module, "to", _to),
    ]
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.random.fork_rng(devices=[]),
        contextlib.ExitStack() as stack,
        Trace() as trace,
    ):
        for owner, name, replacement in patches:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield trace


class _Event:
    """A CUDA event of a device that takes no time."""

    def __init__(self, **_: Any) -> None: ...

    def record(self, stream: Any = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def elapsed_time(self, end: "_Event") -> float:
        """Return 0."""
        return 0.0


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The kernel that PyTorch selects on an A100; its selection needs a driver."""
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if query.ndim != 4:
        # The kernels take batches alone.
        outputs = torch.ops.aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale
        )
    elif attn_mask is None and query.dtype != torch.float32:
        outputs = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, scale=scale
        )
    else:
        bias = None
        if attn_mask is not None:
            # The mask as a bias, with aligned rows.
            bias = attn_mask.to(query.dtype)
            short = -bias.shape[-1] % 16
            if short:
                bias = F.pad(bias, (0, short))[..., :-short]
            bias = bias.expand(*query.shape[:-1], key.shape[-2])
        outputs = torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, True, dropout_p, is_causal, scale=scale
        )
    attended: Tensor = outputs[0]
    return attended


def _to(module: nn.Module, device: torch.device) -> nn.Module:
    """Move buffers; parameters are on the device, where PyTorch would swap them."""
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = buffer.to(device)
    return module


_tasks = iter(range(1, 1 << 62))


@torch.no_grad()
def _backward(root: Tensor, gradient: Tensor | None = None) -> None:
    """The backward pass, node by node: PyTorch's engine asks the driver for streams."""
    if gradient is None:
        gradient = torch.ones_like(root)
    start = root.grad_fn
    assert start is not None
    # Each node is freed after its call, with the tensors that it saved.
    root.detach_()
    waiting = Counter[Any]({start: 0})
    stack = [start]
    while stack:
        for following, _ in stack.pop().next_functions:
            if following is not None:
                if following not in waiting:
                    stack.append(following)
                waiting[following] += 1
    grads: dict[Any, list[Tensor | None]] = {start: [gradient]}
    ready: list[tuple[int, int, Any]] = [(0, 0, start)]
    count = 0
    del root, gradient, start
    task = next(_tasks)
    with mock.patch.object(torch._C, "_current_graph_task_id", return_value=task):
        while ready:
            *_, node = heapq.heappop(ready)
            del waiting[node]
            inputs = grads.pop(node)
            if hasattr(node, "variable"):
                variable = node.variable
                (own,) = inputs
                del inputs
                if own is not None:
                    if variable.grad is None:
                        variable.grad = own.detach()
                    else:
                        variable.grad += own
                del node, variable, own
                continue
            call = (
                node.apply if isinstance(node, torch.autograd.function.BackwardCFunction) else node
            )
            outputs = call(*inputs)
            edges = node.next_functions
            del inputs, node, call
            if not isinstance(outputs, tuple):
                outputs = (outputs,)
            outputs = list(outputs)
            for position, (following, index) in enumerate(edges):
                if following is None:
                    continue
                grad, outputs[position] = outputs[position], None
                expected = following._input_metadata
                places = grads.setdefault(following, [None] * len(expected))
                if grad is not None:
                    if grad.shape != expected[index].shape:
                        # Of an operand that was broadcast.
                        grad = grad.sum_to_size(expected[index].shape)
                    grad = grad.to(expected[index].dtype)
                    places[index] = grad if places[index] is None else places[index] + grad
                grad = None
                waiting[following] -= 1
                if waiting[following] == 0:
                    count += 1
                    heapq.heappush(ready, (-following._sequence_nr(), count, following))
            del outputs, edges
            following = None
