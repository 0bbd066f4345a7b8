"""Estimated cost of an annotator that uses a paid model."""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from biovl.annotate import articles, batches
from biovl.annotate.annotators import Annotator
from biovl.annotate.config import AnnotateConfig
from biovl.core.errors import ConfigError
from biovl.core.tables import Table, open_table

SAMPLE = 64
"""Rows sampled, spread over the table."""


@runtime_checkable
class Estimates(Protocol):
    """An annotator that sends requests to a model."""

    def expected(self, prepared: bytes) -> Counter[str]:
        """Return the expected ``requests``, ``input_tokens`` and ``output_tokens`` of a row."""

    def price(self, tokens: Counter[str]) -> str:
        """Return the cost and duration of some tokens, as text."""


def estimated(config: AnnotateConfig) -> str:
    """Return an estimate of a job's requests, from rows sampled over its table.

    Raises:
        ConfigError: If the annotator sends no requests.
        ArtifactError: If there is no table.
    """
    annotator = config.make()
    if not isinstance(annotator, Estimates):
        raise ConfigError(
            f"--dry-run estimates the cost of requests to a model; {annotator.name} sends none"
        )
    table = open_table(config.table)
    articles.check(table, annotator.reads)
    total, usable, looked = Counter[str](), 0, 0
    for made in itertools.islice(_prepared(config, annotator, table), SAMPLE):
        looked += 1
        if isinstance(made, bytes):
            usable += 1
            total += annotator.expected(made)
    share = table.rows / max(looked, 1)
    scaled = Counter({name: round(count * share) for name, count in total.items()})
    return (
        f"about {usable * share:,.0f} figures of {table.rows:,} rows: {scaled['requests']:,} "
        f"requests, {scaled['input_tokens'] / 1e6:,.2f} M tokens to the model and "
        f"{scaled['output_tokens'] / 1e6:,.2f} M from it\n{annotator.price(scaled)}\n"
        f"estimated from {looked} rows; cached answers cost nothing\n"
    )


def _prepared(config: AnnotateConfig, annotator: Annotator, table: Table) -> Iterator[object]:
    """Yield prepared rows: the first rows of each of some units."""
    units = batches.plan(table, config.rows_per_task)
    step = max(1, len(units) // SAMPLE)
    chosen = units[::step]
    each = -(-SAMPLE // max(len(chosen), 1))
    for unit in chosen:
        rows = batches.rows_of(table, unit, annotator.reads, each)
        for row in itertools.islice(rows, each):
            yield annotator.prepare({name: cell.as_py() for name, cell in row.items()})
