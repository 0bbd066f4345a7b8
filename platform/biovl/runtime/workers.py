"""The workers of a training run and their collectives, with or without ``torch.distributed``."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

# Shapes: b pairs on this worker, N pairs on all workers, D embedding.


def share(total: int, rank: int, workers: int) -> range:
    """Return the rows of ``total`` that a worker owns: a contiguous, nearly equal share."""
    return range(rank * total // workers, (rank + 1) * total // workers)


@dataclass(frozen=True)
class Workers:
    """One of ``count`` equal workers, with its collectives; those of a single worker do nothing."""

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
