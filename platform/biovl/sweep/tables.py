"""The tables of a sweep: trials, validated epochs, and a row per setting as in papers."""

import io
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from biovl.core import markdown
from biovl.sweep.config import COLUMNS, SweepConfig
from biovl.sweep.outcomes import FINISHED, TrialOutcome
from biovl.sweep.trials import validation_corpora

_SCORES = (
    "loss",
    *(f"{way}_recall_at_{k}" for way in ("image_to_text", "text_to_image") for k in (1, 5, 10)),
    "pairs",
)
_TYPES = {
    **dict.fromkeys(("trial", "setting", "status", "reason"), pa.string()),
    **dict.fromkeys(("row", "seed", "context", "batch", "epochs", "epochs_scored"), pa.int64()),
    **dict.fromkeys(("epoch", "pairs"), pa.int64()),
}
"""Types of columns that are not numbers with decimals."""


def trials_table(outcomes: Sequence[TrialOutcome]) -> pa.Table:
    """Return a row per trial: settings, outcome, scores (recalls as fractions)."""
    rows: list[dict[str, Any]] = []
    for outcome in outcomes:
        trial, final = outcome.trial, outcome.final
        rows.append(
            {
                "trial": trial.name,
                "row": trial.row,
                "setting": _setting_text(outcome),
                "seed": trial.config.seed,
                "status": outcome.status,
                "reason": outcome.reason,
                "context": trial.context,
                "batch": trial.config.batch.pairs,
                "epochs": trial.config.epochs,
                "epochs_scored": None if outcome.epoch is None else outcome.epoch + 1,
                "petaflops": trial.flops / 1e15,
                "seconds": outcome.seconds,
                "tokens_cut": trial.tokens_cut,
                "padding": trial.padding,
                "mean_recall_at_1": outcome.mean_recall,
                **{name: final.get(name) for name in _SCORES},
            }
        )
    return _table(rows, rows[0])


def curves_table(outcomes: Sequence[TrialOutcome]) -> pa.Table:
    """Return a row per validated epoch of every trial."""
    rows = [
        {
            "trial": outcome.trial.name,
            "epoch": epoch + 1,
            **{name: scores.get(name) for name in _SCORES},
        }
        for outcome in outcomes
        for epoch, scores in sorted(outcome.scores.items())
    ]
    return _table(rows, ("trial", "epoch", *_SCORES))


def _table(rows: list[dict[str, Any]], names: Iterable[str]) -> pa.Table:
    schema = pa.schema([(name, _TYPES.get(name, pa.float64())) for name in names])
    return pa.Table.from_pylist(rows, schema)


def paper_table(config: SweepConfig, outcomes: Sequence[TrialOutcome]) -> str:
    """Return the table of a paper in Markdown, with our scores next to the published ones.

    Scores of several seeds are shown as mean and sample standard deviation.
    """
    rows = by_row(outcomes)
    shown = list(dict.fromkeys(name for row in rows for name in row[0].trial.shown))
    with_paper = [c for c in config.columns if any(c in row[0].trial.paper for row in rows)]
    heads = [*shown]
    for column in config.columns:
        heads.append(f"{column} {'(↓)' if column in ('loss', 'training time') else '(↑)'}")
        heads += [f"{column}, paper"] if column in with_paper else []
    heads += ["epochs", "compute", "tokens cut", "trials"]
    first = rows[0]
    body = []
    for row in rows:
        trial = row[0].trial
        cells: list[Any] = [trial.shown.get(name) for name in shown]
        for column in config.columns:
            cells.append(_score(column, row, first))
            cells += [_paper(column, row)] if column in with_paper else []
        cells += [
            _epochs_text(row),
            f"{trial.flops / first[0].trial.flops:.2f}x",
            markdown.percent(trial.tokens_cut),
            _status_text(row),
        ]
        body.append([str(cell) if cell is not None else None for cell in cells])
    return markdown.table(heads, body)


def by_row(outcomes: Sequence[TrialOutcome]) -> list[list[TrialOutcome]]:
    """Return the outcomes grouped by row of the table: trials that differ only in the seed."""
    rows: dict[int, list[TrialOutcome]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.trial.row, []).append(outcome)
    return [rows[number] for number in sorted(rows)]


def pool_sizes(outcomes: Sequence[TrialOutcome]) -> list[int]:
    """Return the distinct sizes of the trials' retrieval pools, in val pairs, ascending."""
    return sorted({int(outcome.final["pairs"]) for outcome in outcomes if outcome.final})


def best_row(outcomes: Sequence[TrialOutcome]) -> list[TrialOutcome] | None:
    """Return the outcomes of the best row: the largest share of finished trials, then mean R@1.

    The share comes first, because a mean over only the seeds that survived early stopping or
    divergence is biased upwards. Ties, frequent with few pairs, go to the lowest mean loss, as for
    the best epoch of a run, then to the first row.

    None if no trial finished, or if trials were scored on val of different corpora, or among
    different numbers of pairs: recall among 20 pairs is higher than among 10,000, whatever the
    model.
    """
    val = validation_corpora([outcome.trial for outcome in outcomes])
    if len(val) > 1 or len(pool_sizes(outcomes)) > 1:
        return None
    best: list[TrialOutcome] | None = None
    highest = (0.0, float("-inf"), float("-inf"))
    for row in by_row(outcomes):
        found = [o.mean_recall for o in row if o.status == FINISHED and o.mean_recall is not None]
        if not found:
            continue
        loss = statistics.fmean(values_of(row, "loss") or [0.0])
        rank = len(found) / len(row), statistics.fmean(found), -loss
        if rank > highest:
            best, highest = row, rank
    return best


def values_of(row: Sequence[TrialOutcome], name: str) -> list[float]:
    """Return a score, by its name, of every finished trial of a row."""
    return [
        float(outcome.final[name])
        for outcome in row
        if outcome.status == FINISHED and outcome.final.get(name) is not None
    ]


def parquet(table: pa.Table) -> bytes:
    """Return a table as the bytes of a Parquet file."""
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def csv(table: pa.Table) -> bytes:
    """Return a table as the bytes of a CSV file with a header."""
    stream = io.BytesIO()
    pacsv.write_csv(table, stream)
    return stream.getvalue()


def _setting_text(outcome: TrialOutcome) -> str:
    return ", ".join(f"{name} {value}" for name, value in outcome.trial.shown.items()) or "base"


def _score(column: str, row: list[TrialOutcome], first: list[TrialOutcome]) -> str | None:
    name, factor, decimals = COLUMNS[column]
    if name == "relative_seconds":
        mine, others = _seconds(row), _seconds(first)
        return None if not mine or not others else f"{mine / others:.{decimals}f}x"
    values = [factor * value for value in values_of(row, name)]
    if not values:
        return None
    mean = f"{statistics.fmean(values):.{decimals}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values):.{decimals}f}"


def _seconds(row: list[TrialOutcome]) -> float | None:
    found = [o.seconds for o in row if o.status == FINISHED and o.seconds]
    return statistics.fmean(found) if found else None


def _paper(column: str, row: list[TrialOutcome]) -> str | None:
    value = row[0].trial.paper.get(column)
    _, _, decimals = COLUMNS[column]
    return None if value is None else f"{value:.{decimals}f}"


def _epochs_text(row: list[TrialOutcome]) -> str:
    """Return the epochs of a row, with those whose scores are shown if they are not the last."""
    epochs = row[0].trial.config.epochs
    scored = sorted({o.epoch + 1 for o in row if o.status == FINISHED and o.epoch is not None})
    if scored in ([], [epochs]):
        return str(epochs)
    return f"{', '.join(map(str, scored))} of {epochs}"


def _status_text(row: list[TrialOutcome]) -> str:
    """Return how many trials finished, and the reasons of the others."""
    finished = sum(outcome.status == FINISHED for outcome in row)
    said = [f"{finished} of {len(row)}"] if finished != len(row) else [str(finished)]
    for outcome in row:
        if outcome.status != FINISHED:
            after = "" if outcome.epoch is None else f" after epoch {outcome.epoch + 1}"
            reason = f": {outcome.reason.splitlines()[0][:160]}" if outcome.reason else ""
            said.append(f"seed {outcome.trial.config.seed} {outcome.status}{after}{reason}")
    return "; ".join(said)
