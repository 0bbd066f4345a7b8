"""The settings of harvest."""

from dataclasses import dataclass

from biovl.core.config import REQUIRED, Recipe
from biovl.core.plugins import Plugin


@dataclass(frozen=True, kw_only=True)
class HarvestConfig:
    """What to read and where to put it."""

    source: Plugin
    """Where packages come from: ``source.name`` is a file in ``biovl/harvest/sources`` (packages,
    table, pmc_open_data), the rest are its settings: ``source.path``, a folder, archive or bucket
    of packages, or a table; ``source.images`` and ``source.columns.caption=…`` of a table;
    ``source.search``, ``source.licenses`` … of pmc_open_data, see docs/acquire.md."""

    out: str
    """The folder to publish, local or ``s3://``."""

    packages_per_unit: int = 32
    """Packages read by one task; its parts and its receipt are what a killed job keeps."""

    part_size_mb: int = 256
    """A part is closed when its rows weigh this much: no file grows with an archive."""

    may_be_empty: bool = False
    """Whether a result without anything usable is published; else it is an error."""

    def __post_init__(self) -> None:
        if self.packages_per_unit < 1 or self.part_size_mb < 1:
            raise ValueError("packages_per_unit and part_size_mb must be positive")


def packages() -> HarvestConfig:
    """PMC packages: folders, archives or tars of many, local or s3:// (needs source.path, out)."""
    return HarvestConfig(source=Plugin("packages"), out=REQUIRED)


def table() -> HarvestConfig:
    """A folder of images and a table of captions (needs source.path, out)."""
    return HarvestConfig(source=Plugin("table"), out=REQUIRED)


def pmc_open_data() -> HarvestConfig:
    """PMC as it is distributed today: its open-data bucket, all of it (needs out)."""
    return HarvestConfig(source=Plugin("pmc_open_data"), out=REQUIRED)


def pmc_sample() -> HarvestConfig:
    """The newest 100 open articles of PMC that a search finds (needs out, and internet)."""
    asked = {"search": "radiography AND open_access[filter]", "search_limit": 100}
    # A guest: far below what the bucket serves.
    slowly = {"requests_per_s": 20, "concurrent": 8}
    return HarvestConfig(
        source=Plugin("pmc_open_data", {**asked, **slowly}),
        out=REQUIRED,
        # So that every core has something to do.
        packages_per_unit=8,
    )


RECIPES: dict[str, Recipe[HarvestConfig]] = {
    "packages": packages,
    "table": table,
    "pmc_open_data": pmc_open_data,
    "pmc_sample": pmc_sample,
}
