"""The workers that train together: what they exchange, with or without ``torch.distributed``."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

# Shapes: b pairs on this worker, N pairs on all workers, D embedding.


def share(total: int, rank: int, workers: int) -> range:
    """Return which of ``total`` rows a worker owns: consecutive, and even to within one."""
    return range(rank * total // workers, (rank + 1) * total // workers)


@dataclass(frozen=True)
class Workers:
    """One of ``count`` equal workers. Alone, every exchange is the identity."""

    rank: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> "Workers":
        """Return this process's place among those of the process group, alone if there is none."""
        if not dist.is_initialized():
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the workers. Changes ``values``."""
        if self.count > 1:
            dist.all_reduce(values, dist.ReduceOp.SUM)
        return values

    def max(self, values: Tensor) -> Tensor:
        """Return the largest over the workers, element by element. Changes ``values``."""
        if self.count > 1:
            dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    def gather(self, rows_bD: Tensor, total: int) -> Callable[[], Tensor]:
        """Begin to collect the rows of all workers; call the result to wait for them.

        Args:
            rows_bD: The rows of ``share(total, rank, count)``.
            total: Rows of all workers, N.

        Returns:
            A function that returns all rows in order, shape [N, D].
        """
        if self.count == 1:
            return lambda: rows_bD
        # Collectives want equal shapes: the shares differ by at most one row.
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
        """Begin to sum rows over all workers; call the result to wait for this worker's share.

        Args:
            rows_ND: What this worker adds to each row, shape [N, D].

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
        """Return where the N rows stand among equally long padded shares."""
        shares = [share(total, rank, self.count) for rank in range(self.count)]
        return torch.cat(
            [
                torch.arange(rank * most, rank * most + len(rows), device=device)
                for rank, rows in enumerate(shares)
            ]
        )
