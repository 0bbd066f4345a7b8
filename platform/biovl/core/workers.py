"""The setting ``workers`` of jobs: resources of the processes that compute."""

from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeFloat, PositiveInt

Precision = Literal["float32", "bfloat16", "auto"]
"""Compute dtype of a model; auto is bfloat16 on GPUs that support it. Vectors are float32."""


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """Resources of a task or actor. They affect speed, not results."""

    cpus: PositiveInt = 1
    """CPU cores per worker: the threads of its model and, of image decoding, if it decodes
    images."""

    gpus: NonNegativeFloat = 0
    """GPUs per worker; 0 computes on the CPU, and with 0.25 four workers share a GPU."""
