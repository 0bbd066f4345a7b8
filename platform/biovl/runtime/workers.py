"""The workers of a training run and their collectives, with or without ``torch.distributed``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils import _pytree as pytree

from biovl.core.errors import BiovlError

# Shapes: b pairs on this worker, N pairs on all workers, D embedding.


def share(total: int, rank: int, workers: int) -> range:
    """Return the rows of ``total`` that a worker owns: a contiguous, nearly equal share."""
    return range(rank * total // workers, (rank + 1) * total // workers)


@dataclass(frozen=True)
class Workers:
    """Rank and number of the workers, with collective operations: no-ops for a single worker."""

    rank: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> "Workers":
        """Return this process's rank and world size; without a process group, one worker."""
        if not dist.is_initialized():
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the workers. Modifies ``values`` in place."""
        if self.count > 1:
            dist.all_reduce(values, dist.ReduceOp.SUM)
        return values

    def max(self, values: Tensor) -> Tensor:
        """Return the elementwise maximum over the workers. Modifies ``values`` in place."""
        if self.count > 1:
            dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    def broadcast(self, read: Callable[[], Any], device: torch.device) -> Any:
        """Return the result of ``read``, which only worker 0 calls, on all workers.

        Tensors are broadcast one at a time, so that ``device`` needs memory for the result only.
        Scalar tensors stay on the host, where optimizers count their steps.

        Args:
            read: Returns dictionaries, lists and tuples of tensors and other values.
            device: Device of the process group, for the tensors.

        Raises:
            BiovlError: If ``read`` raises it, on all workers.
            RuntimeError: On the other workers, if ``read`` raises another exception.
        """
        if self.count == 1:
            return read()
        sent: list[Any] = [None, None]
        failure: Exception | None = None
        tensors: list[Tensor] = []
        if self.rank == 0:
            try:
                result = read()
                tensors = [leaf for leaf in pytree.tree_leaves(result) if _is_sent(leaf)]
                sent = [pytree.tree_map_only(_is_sent, lambda leaf: leaf.to("meta"), result), None]
            # Whatever it is, the others must not wait for a result.
            except Exception as error:
                failure = error
                is_ours = isinstance(error, BiovlError)
                sent = [None, error if is_ours else RuntimeError(f"worker 0 failed: {error!r}")]
        dist.broadcast_object_list(sent, src=0, device=device)
        if self.rank == 0 and failure is not None:
            raise failure
        shape, reason = sent
        if reason is not None:
            raise reason
        remaining = iter(tensors)

        def receive(leaf: Tensor) -> Tensor:
            tensor = (
                next(remaining).to(device).contiguous()
                if self.rank == 0
                else torch.empty(leaf.shape, dtype=leaf.dtype, device=device)
            )
            # As bytes: backends differ in the types that they know.
            dist.broadcast(tensor.view(-1).view(torch.uint8), src=0)
            return tensor

        return pytree.tree_map_only(_is_sent, receive, shape)

    def together(self, work: Callable[[], None], device: torch.device) -> None:
        """Call ``work`` on all workers; if it fails on one, raise on all.

        Without this, the others would wait in their next collective.

        Raises:
            RuntimeError: If ``work`` failed on another worker; on that one, its own exception.
        """
        failure: Exception | None = None
        try:
            work()
        except Exception as error:
            failure = error
        failed = self.max(torch.tensor(self.rank + 1 if failure else 0, device=device))
        if failure is not None:
            raise failure
        if failed:
            raise RuntimeError(f"worker {int(failed) - 1} failed; its own error says why")

    def gather(self, rows_bD: Tensor, total: int) -> Callable[[], Tensor]:
        """Start an all-gather of rows; call the result to wait for it.

        Args:
            rows_bD: The rows of ``share(total, rank, count)``.
            total: Rows of all workers, N.

        Returns:
            A function that returns all rows in order, shape [N, D].
        """
        if self.count == 1:
            return lambda: rows_bD
        # Collectives need equal shapes: the shares differ by at most one row.
        most = -(-total // self.count)
        padded = rows_bD.new_zeros(most, rows_bD.shape[1])
        padded[: len(rows_bD)] = rows_bD
        received = rows_bD.new_empty(self.count * most, rows_bD.shape[1])
        work = dist.all_gather_into_tensor(received, padded, async_op=True)
        assert work is not None

        def wait() -> Tensor:
            work.wait()
            return received[self._kept(total, most, received.device)]

        return wait

    def reduce_scatter(self, rows_ND: Tensor) -> Callable[[], Tensor]:
        """Start a reduce-scatter of rows; call the result to wait for this worker's share.

        Args:
            rows_ND: This worker's contribution to each row, shape [N, D].

        Returns:
            A function that returns the sums of ``share(N, rank, count)``, shape [b, D].
        """
        if self.count == 1:
            return lambda: rows_ND
        total, dim = rows_ND.shape
        most = -(-total // self.count)
        padded = rows_ND.new_zeros(self.count * most, dim)
        padded[self._kept(total, most, rows_ND.device)] = rows_ND
        received = rows_ND.new_empty(most, dim)
        work = dist.reduce_scatter_tensor(received, padded, async_op=True)
        assert work is not None
        own = len(share(total, self.rank, self.count))

        def wait() -> Tensor:
            work.wait()
            return received[:own]

        return wait

    def _kept(self, total: int, most: int, device: torch.device) -> Tensor:
        """Return the indices of the N rows in the padded shares of equal length."""
        shares = [share(total, rank, self.count) for rank in range(self.count)]
        return torch.cat(
            [
                torch.arange(rank * most, rank * most + len(rows), device=device)
                for rank, rows in enumerate(shares)
            ]
        )


def _is_sent(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim > 0 and leaf.numel() > 0
