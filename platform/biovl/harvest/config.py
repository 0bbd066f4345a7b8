"""Settings of harvest."""

from dataclasses import dataclass

from pydantic import PositiveInt

from biovl.core.config import REQUIRED, Recipe
from biovl.core.plugins import Plugin


@dataclass(frozen=True, kw_only=True)
class HarvestConfig:
    """Settings of harvest: the source of the articles, and the folder to publish."""

    source: Plugin
    """The source of packages: ``source.name`` is a plug-in in ``biovl/harvest/sources``
    (``packages``, ``table``, ``pmc_open_data``), the other entries are its settings.
    ``source.path``: a folder, archive or bucket of packages, or a table; ``source.images`` and
    ``source.columns.caption=…`` of a table; ``source.search``, ``source.licenses`` … of
    pmc_open_data, see docs/acquire.md."""

    out: str
    """The folder to publish, local or ``s3://``."""

    packages_per_unit: PositiveInt = 32
    """Packages per task. A task that has finished is not repeated after an interruption."""

    part_size_mb: PositiveInt = 256
    """Approximate maximum size of a part file in MB of rows in memory, whatever the size of an
    archive."""

    may_be_empty: bool = False
    """Whether to publish a result without any usable row; otherwise this is an error."""


def packages() -> HarvestConfig:
    """PMC packages in folders or archives, local or s3:// (needs source.path, out)."""
    return HarvestConfig(source=Plugin("packages"), out=REQUIRED)


def table() -> HarvestConfig:
    """A folder of images and a table of their captions (needs source.path, out)."""
    return HarvestConfig(source=Plugin("table"), out=REQUIRED)


def pmc_open_data() -> HarvestConfig:
    """All articles of PMC's open-data bucket (needs out)."""
    return HarvestConfig(source=Plugin("pmc_open_data"), out=REQUIRED)


def pmc_sample() -> HarvestConfig:
    """The 100 newest open-access articles of PMC that match a search (needs out, and internet)."""
    query = {"search": "radiography AND open_access[filter]", "search_limit": 100}
    # Far below the capacity of the bucket, out of courtesy.
    rate_limit = {"requests_per_s": 20, "concurrent": 8}
    return HarvestConfig(
        source=Plugin("pmc_open_data", {**query, **rate_limit}),
        out=REQUIRED,
        # Small units, so that every core has some.
        packages_per_unit=8,
    )


RECIPES: dict[str, Recipe[HarvestConfig]] = {
    "packages": packages,
    "table": table,
    "pmc_open_data": pmc_open_data,
    "pmc_sample": pmc_sample,
}
