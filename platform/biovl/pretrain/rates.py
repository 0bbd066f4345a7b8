"""Measured and published rates of training and of loading pairs: contents of ``rates.yaml``."""

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import yaml

from biovl.core import config as configs


@dataclass(frozen=True, kw_only=True)
class TrainingRate:
    """Share of the peak that training reaches on some accelerators, eager or compiled."""

    accelerators: tuple[str, ...]
    """Names, as in ``hardware``."""

    compile: bool
    share: float
    """Operations per second, recomputation included, as a share of the peak in bfloat16."""

    low: float
    high: float
    how: Literal["measured", "published"]
    source: str


@dataclass(frozen=True, kw_only=True)
class DataRates:
    """CPU time to load pairs."""

    stored_288_ms: float
    published_ms: float
    ray_ms: float
    """Additional time of Ray Data per pair."""

    vcpu_speed: float
    """Speed of a vCPU in the cloud, as a share of the core of the measurement."""


_PX = 288
_ASPECT = 1.4
_PUBLISHED_MEGAPIXELS = 1.04


@functools.cache
def _tables() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("rates.yaml").read_text(encoding="utf-8")
    tables: dict[str, Any] = yaml.safe_load(text)
    return tables


@functools.cache
def training_rate(accelerator: str, *, compiled: bool) -> TrainingRate | None:
    """Return the rate of an accelerator, the last one in the file; None if there is none."""
    entries = [
        configs.build(TrainingRate, values, name=f"training[{number}]")
        for number, values in enumerate(_tables()["training"])
    ]
    return next(
        (
            each
            for each in reversed(entries)
            if accelerator in each.accelerators and each.compile == compiled
        ),
        None,
    )


@functools.cache
def data_rates() -> DataRates:
    """Return the CPU times to load a pair."""
    return configs.build(DataRates, _tables()["data"], name="data")


def pair_ms(stored_px: int | None) -> float:
    """Return the CPU time to load a pair, with Ray Data, in milliseconds.

    It is linear in the pixels of the stored image, through two measurements: images stored at
    288 px, and images as published.

    Args:
        stored_px: Largest shorter side of stored images; None: as published.
    """
    rates = data_rates()
    megapixels = _PUBLISHED_MEGAPIXELS
    if stored_px is not None:
        megapixels = min(megapixels, _ASPECT * stored_px**2 / 1e6)
    small = _ASPECT * _PX**2 / 1e6
    slope = (rates.published_ms - rates.stored_288_ms) / (_PUBLISHED_MEGAPIXELS - small)
    return rates.ray_ms + rates.stored_288_ms + slope * (megapixels - small)


def vcpus(pairs_per_s: float, each_ms: float) -> float:
    """Return the vCPUs that load pairs at a rate."""
    return pairs_per_s * each_ms / 1e3 / data_rates().vcpu_speed
