"""Work in the job's own process, as a Ray worker would do it."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def as_worker(cpus: float) -> Iterator[None]:
    """Run the block with ``cpus`` PyTorch threads; then restore threads, settings and RNG state."""
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    # As many as Ray gives a worker: sums of floats depend on it.
    torch.set_num_threads(max(1, int(cpus)))
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
