"""Size and time estimate of a harvest, from the listing and a random sample of articles."""

import math
import mimetypes
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from biovl.core.limits import HEADROOM, LocalLimiter
from biovl.harvest.pmc import steps
from biovl.harvest.pmc.client import BucketClient
from biovl.harvest.pmc.context import AcquisitionContext
from biovl.harvest.pmc.records import Record
from biovl.harvest.pmc.settings import Config
from biovl.harvest.pmc.store import Store
from biovl.harvest.sources import FileError

RECORDS, SIZED = 200, 30
"""Number of articles whose records are read, and of those whose file sizes are requested."""

_MB_PER_S = 50.0
"""Assumed network throughput, apart from the configured limits."""
_TWO_SIDED = 1.96


@dataclass(frozen=True)
class Extrapolated:
    """A total extrapolated from a sample, with its 95 % margin of error."""

    total: float
    error: float

    def __str__(self) -> str:
        if self.error < 0.5:
            return f"{self.total:,.0f}"
        return f"{_rounded(self.total)} ± {_rounded(self.error)}"


@dataclass(frozen=True, kw_only=True)
class HarvestEstimate:
    """Estimated number of articles, figures and requests of a harvest, and their size and time."""

    listed: int
    """Number of article versions in the bucket's list."""
    selected: int
    """Number of articles whose records a harvest reads: the requested ones, and with ``since``
    those that changed."""
    sampled: int
    """Number of these whose records the estimate reads."""
    articles: Extrapolated
    figures: Extrapolated
    size_bytes: Extrapolated
    requests: float
    seconds: float
    answer_s: float
    warnings: list[str]


def estimate(config: Config) -> HarvestEstimate:
    """Return the estimate of a harvest; reads the full listing and writes nothing.

    Raises:
        SourceError: If the source as a whole cannot be read.
        StorageError: If the service fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = AcquisitionContext(config=config, out=folder, limiter=LocalLimiter(config.limits))
        plan, read, compared = steps.compare_all(place)
        selected, sample = _sample(place, len(compared))
        with place.service(plan["url"]) as service:
            service.known = plan["known"]
            return _of_sample(
                config, service, place.store("sample"), sample, selected,
                listed=sum(receipt["rows"] for receipt in read),
                warnings=steps.absent_warnings(compared, plan),
            )  # fmt: skip


def _sample(place: AcquisitionContext, parts: int) -> tuple[int, list[list[dict[str, Any]]]]:
    """Return the number of articles to read, and the versions of a random sample of them."""
    numbers = [
        np.unique(place.table("versions", part)["number"].to_numpy()) for part in range(parts)
    ]
    every = np.concatenate(numbers)
    # Random, not at equal distances, which would be biased by periodic patterns.
    rng = np.random.default_rng(0)
    sampled = rng.choice(every, min(RECORDS, len(every)), replace=False)
    found: dict[int, list[dict[str, Any]]] = {}
    for part in range(parts):
        table = place.table("versions", part)
        for row in table.filter(np.isin(table["number"], sampled)).to_pylist():
            found.setdefault(row["number"], []).append(row)
    return len(every), list(found.values())


def _of_sample(
    config: Config,
    service: BucketClient,
    store: Store,
    sample: Sequence[Sequence[dict[str, Any]]],
    selected: int,
    *,
    listed: int,
    warnings: list[str],
) -> HarvestEstimate:
    waited: list[float] = []

    def record_of(versions: Sequence[dict[str, Any]]) -> Record | None:
        begun = time.monotonic()
        choice = steps.choose_version(config, service, store, versions)
        waited.append(time.monotonic() - begun)
        return choice.record

    def size_of(record: Record) -> float:
        names = [record.xml_name, *(name for name in _images(record))]
        return float(sum(_size(service, f"{record.name}/{name}") for name in names))

    with ThreadPoolExecutor(min(config.threads, 8)) as pool:
        records = list(pool.map(record_of, sample))
        taken = [record for record in records if record is not None]
        sizes = list(pool.map(size_of, taken[:: max(1, len(taken) // SIZED)][:SIZED]))
    articles = _extrapolated([float(record is not None) for record in records], selected)
    images = [float(len(_images(record))) if record is not None else 0.0 for record in records]
    figures = _extrapolated(images, selected)
    size = _extrapolated(sizes, round(articles.total))
    requests = selected + articles.total + figures.total
    # Most requests also wait for their turn: the fastest ones show the response time.
    answer_s = float(np.percentile(waited, 10)) if waited else 0.0
    seconds = max(
        requests / (HEADROOM * config.requests_per_s),
        requests * answer_s / config.concurrent,
        size.total / (_MB_PER_S * 1e6),
    )
    return HarvestEstimate(
        listed=listed,
        selected=selected,
        sampled=len(sample),
        articles=articles,
        figures=figures,
        size_bytes=size,
        requests=requests,
        seconds=seconds,
        answer_s=answer_s,
        warnings=warnings,
    )


def format_estimate(config: Config) -> str:
    """Return the estimate of a harvest as text."""
    found = estimate(config)
    size = found.size_bytes
    mb = Extrapolated(size.total / 1e6, size.error / 1e6)
    return (
        f"listed      {found.listed:,} versions, {found.selected:,} articles to read\n"
        f"sampled     {found.sampled:,} articles\n"
        f"articles    {found.articles}\n"
        f"figures     {found.figures}  (images among the media of their records)\n"
        f"size        {mb} MB\n"
        f"requests    {found.requests:,.0f}\n"
        f"time        {_duration(found.seconds)} at least, with {config.requests_per_s:g} requests "
        f"a second and {config.concurrent} at a time; an answer takes {found.answer_s:.3f} s\n"
        "An error is given where only a sample was looked at (95 %). Nothing was written.\n"
        + "".join(f"warning: {warning}\n" for warning in found.warnings)
    )


def _images(record: Record) -> list[str]:
    return [
        medium.name
        for medium in record.media
        if medium.name.lower().endswith(".webp")
        or (mimetypes.guess_type(medium.name)[0] or "").startswith("image/")
    ]


def _size(service: BucketClient, key: str) -> int:
    try:
        return service.size(key) or 0
    except FileError:
        return 0


def _extrapolated(values: Sequence[float], total: int) -> Extrapolated:
    if not values:
        return Extrapolated(0.0, 0.0)
    mean = float(np.mean(values))
    if len(values) >= total or len(values) < 2:
        return Extrapolated(mean * total, 0.0)
    left = math.sqrt(1 - len(values) / total)
    error = _TWO_SIDED * float(np.std(values, ddof=1)) / math.sqrt(len(values)) * left
    return Extrapolated(mean * total, error * total)


def _rounded(value: float) -> str:
    """Round to three digits: the estimate is no more precise."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(0, digits)}f}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"
