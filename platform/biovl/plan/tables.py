"""Inputs of plans, stored as YAML files in this folder: prices and assumptions."""

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import yaml

from biovl.core import config as configs


@dataclass(frozen=True, kw_only=True)
class Instance:
    """An instance type with its resources and prices."""

    vcpus: int
    memory_gib: float
    source: str
    """Source and date of its prices."""

    accelerator: str | None = None
    """Name of its GPU in ``pretrain.hardware``; None without GPUs."""
    gpus: int = 0

    on_demand: float | None = None
    """Price on demand, dollars per hour; None if it is not offered."""
    block: float | None = None
    """Price in a Capacity Block, dollars per hour; None if it is not offered."""


@dataclass(frozen=True, kw_only=True)
class S3:
    """Prices of object storage, in US dollars."""

    gb_month: float
    put_1000: float
    """Price of 1,000 write or list requests."""
    get_1000: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices of machines and storage: contents of ``prices.yaml``."""

    date: str
    note: str
    instances: dict[str, Instance]
    s3: S3


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """A quantity that is assumed, with its range."""

    low: float
    mid: float
    high: float
    unit: str
    how: Literal["measured", "published", "assumed", "given"]
    source: str

    at_least: float | None = None
    """Least possible value; None: any above 0."""
    at_most: float | None = None
    """Greatest possible value; None: any."""

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.mid <= self.high:
            raise ValueError(f"expected 0 < low <= mid <= high, got {self.low}, {self.mid}, …")
        if self.at_least is not None and self.low < self.at_least:
            raise ValueError(
                f"at least {self.at_least:g} is possible ({self.unit}), got {self.low}"
            )
        if self.at_most is not None and self.high > self.at_most:
            raise ValueError(f"at most {self.at_most:g} is possible ({self.unit}), got {self.high}")


@functools.cache
def prices() -> Prices:
    """Return the built-in prices of ``prices.yaml``."""
    tables = read("prices.yaml")
    # Instance names contain dots, which configurations use as separators.
    instances = tables["instances"].items()
    return Prices(
        date=str(tables["date"]),
        note=tables["note"],
        instances={name: configs.build(Instance, values, name=name) for name, values in instances},
        s3=configs.build(S3, tables["s3"], name="s3"),
    )


@functools.cache
def assumptions() -> dict[str, Assumption]:
    """Return the built-in assumptions of ``assumptions.yaml`` by name."""
    return {
        name: configs.build(Assumption, values, name=name)
        for name, values in read("assumptions.yaml").items()
    }


@functools.cache
def read(name: str) -> dict[str, Any]:
    """Return the contents of a YAML file in this folder."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found
