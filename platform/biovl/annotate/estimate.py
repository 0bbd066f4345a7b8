"""Estimated cost of an annotator that uses a paid model."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from biovl.annotate import articles, batches, selection
from biovl.annotate.annotators import Annotator
from biovl.annotate.config import AnnotateConfig
from biovl.core.errors import ConfigError
from biovl.core.tables import Table, open_table

SAMPLE = 64
"""Rows sampled, spread over the table."""


@runtime_checkable
class Estimates(Protocol):
    """An annotator that sends requests to a model, and can estimate their number and cost."""

    def expected(self, prepared: bytes) -> Counter[str]:
        """Return the expected ``requests``, ``input_tokens`` and ``output_tokens`` of a row."""

    def price(self, tokens: Counter[str]) -> str:
        """Return the cost and duration of ``expected`` requests and tokens, as text."""


def dry_run_text(config: AnnotateConfig) -> str:
    """Return the counts of selected rows and the estimated cost of their requests, as text.

    The requests are extrapolated from a sample of the selected rows.

    Raises:
        ConfigError: If all rows are selected and the annotator sends no requests.
        ArtifactError: If there is no table.
    """
    annotator = config.make()
    table = open_table(config.table)
    articles.check(table, annotator.reads)
    reasons, about, rows = None, "", table.rows
    if config.select.is_set:
        selection.check(config, table)
        looked = [selection.look(config, table, number) for number in range(len(table.parts))]
        reasons = selection.choose(looked, config.select.rows)
        counts = selection.counts_of(reasons)
        about, rows = f"{selection.described(counts)}\n", counts["selected"]
    if not isinstance(annotator, Estimates):
        if about:
            return about
        raise ConfigError(
            f"--dry-run estimates the cost of requests to a model; {annotator.name} sends none"
        )
    total, usable, looked_at = Counter[str](), 0, 0
    for made in _prepared(config, annotator, table, reasons):
        looked_at += 1
        if isinstance(made, bytes):
            usable += 1
            total += annotator.expected(made)
    share = rows / max(looked_at, 1)
    scaled = Counter({name: round(count * share) for name, count in total.items()})
    return (
        f"{about}about {usable * share:,.0f} figures of {rows:,} rows: {scaled['requests']:,} "
        f"requests, {scaled['input_tokens'] / 1e6:,.2f} M tokens to the model and "
        f"{scaled['output_tokens'] / 1e6:,.2f} M from it\n{annotator.price(scaled)}\n"
        f"estimated from {looked_at} rows; cached answers cost nothing\n"
    )


def _prepared(
    config: AnnotateConfig,
    annotator: Annotator,
    table: Table,
    reasons: Sequence[pa.Array] | None,
) -> Iterator[object]:
    """Yield prepared rows: the first selected rows of units, as many as the unit's share."""
    units = batches.plan(table, config.rows_per_task)
    chosen = [
        np.ones(unit.rows, bool) if reasons is None else selection.mask(reasons[unit.part], unit)
        for unit in units
    ]
    for unit, selected, count in zip(units, chosen, shares([c.sum() for c in chosen]), strict=True):
        if count:
            rows = itertools.compress(
                batches.rows_of(table, unit, annotator.reads, SAMPLE), selected
            )
            for row in itertools.islice(rows, count):
                yield annotator.prepare({name: cell.as_py() for name, cell in row.items()})


def shares(rows: Sequence[int]) -> list[int]:
    """Distribute ``SAMPLE`` rows over units in proportion to their numbers of rows."""
    ends = np.cumsum([0, *rows])
    count = min(SAMPLE, ends[-1])
    # Evenly spaced in the table, each in the middle of its stretch.
    places = (2 * np.arange(count) + 1) * ends[-1] // (2 * max(count, 1))
    units = np.searchsorted(ends, places, side="right") - 1
    return [int(taken) for taken in np.bincount(units, minlength=len(rows))]
