"""The numbers that plans are made from, as data beside this file: prices and assumptions."""

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import yaml

from biovl.core import config as configs


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A machine to rent."""

    vcpus: int
    memory_gib: float
    source: str
    """Where its prices were read, and when."""

    accelerator: str | None = None
    """A name of ``training.hardware``."""
    gpus: int = 0

    on_demand: float | None = None
    """Dollars an hour; None where it is not offered so."""
    block: float | None = None
    """In a Capacity Block."""


@dataclass(frozen=True, kw_only=True)
class S3:
    """Object storage, in dollars."""

    gb_month: float
    put_1000: float
    """A thousand requests that write or list."""
    get_1000: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What ``prices.yaml`` holds."""

    date: str
    note: str
    instances: dict[str, Instance]
    s3: S3


@dataclass(frozen=True, kw_only=True)
class Assumption:
    """A number that a plan rests on."""

    low: float
    mid: float
    high: float
    unit: str
    how: Literal["measured", "published", "assumed", "given"]
    source: str

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.mid <= self.high:
            raise ValueError(f"expected 0 < low <= mid <= high, got {self.low}, {self.mid}, …")


@functools.cache
def prices() -> Prices:
    """Return the prices that come with the package."""
    held = read("prices.yaml")
    # Names of instances have dots, which configurations would take apart.
    found = held["instances"].items()
    return Prices(
        date=str(held["date"]),
        note=held["note"],
        instances={name: configs.build(Instance, values, name=name) for name, values in found},
        s3=configs.build(S3, held["s3"], name="s3"),
    )


@functools.cache
def assumptions() -> dict[str, Assumption]:
    """Return the assumptions that come with the package, by name."""
    return {
        name: configs.build(Assumption, values, name=name)
        for name, values in read("rates.yaml").items()
    }


@functools.cache
def read(name: str) -> dict[str, Any]:
    """Return what a file beside this one holds."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found
