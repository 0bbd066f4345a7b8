"""Selection of the rows to annotate: those that the rules of a corpus keep, or a sample of these.

The sample is drawn by a hash of the row's id and a seed: with the same rules, a larger sample
includes a smaller one. Rows that are not selected are counted by reason, and marked in the defect
column.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biovl.annotate.batches import Unit
from biovl.annotate.config import AnnotateConfig
from biovl.assemble import pairs, rules, splits, steps
from biovl.core.artifacts import COLUMNS, Draft, Input, fingerprint, read_manifest
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.harvests import HarvestPart
from biovl.core.tables import PARTS, Table, TablePart, read_table, write_table

STAGE = "selecting part"
PLANS = ("selecting-part/", "selection/", "selected/", "selected")
"""Notes and folders of a draft that a selection makes; cheap to make again."""

_LOOKED, _REASONS = ".draft/selection", ".draft/selected"


def inputs(config: AnnotateConfig) -> list[Input]:
    """Return the folders of columns that the rules read."""
    return [
        Input(name="selection", uri=uri, fingerprint=fingerprint(uri))
        for uri in config.select.columns
    ]


def check(config: AnnotateConfig, table: Table) -> None:
    """Check that all columns that the rules read exist.

    Raises:
        ConfigError: If one does not; the message names the rule and the column.
        ArtifactError: If a folder of columns is not published, or was made from another table.
    """
    available = [*table.names]
    if _is_harvest(table):
        available += [name for name in pairs.CANDIDATE_SCHEMA.names if name not in available]
    for uri in config.select.columns:
        made_from = {item.fingerprint for item in read_manifest(uri, COLUMNS).inputs}
        if table.fingerprint not in made_from:
            raise ArtifactError(
                f"select.columns: {uri} was made from another table than {table.uri}"
            )
        available += _schema(uri, table.parts[0]).names
    rules.check_columns(rules.make_rules(config.select.rules), available)


def look(config: AnnotateConfig, table: Table, number: int) -> pa.Table:
    """Return for each row of a part its random ``key``, and the ``reason`` if a rule rejects it."""
    wanted, part = config.select, table.parts[number]
    row_rules = rules.make_rules(wanted.rules)
    reads = dict.fromkeys(name for rule in row_rules for name in rule.reads)
    rows = _rows(config, table, part, list(reads))
    reasons = rules.rejections(rows, row_rules)
    ids = (
        [f"{part.name}:{row}" for row in range(part.rows)]
        if table.id_column is None
        else [str(name) for name in rows[table.id_column].to_pylist()]
    )
    return pa.table({"key": splits.shuffle_keys(ids, wanted.seed), "reason": reasons})


def choose(looked: Sequence[pa.Table], most: int | None) -> list[pa.Array]:
    """Return the reason of each row that is not selected, by part; null for selected rows.

    Args:
        looked: Results of ``look``, by part.
        most: Maximum number of rows to select; None for all that the rules keep.
    """
    reasons = [table["reason"].combine_chunks() for table in looked]
    if most is None:
        return reasons
    kept = np.concatenate([reason.is_null().to_numpy(zero_copy_only=False) for reason in reasons])
    keys = np.concatenate([table["key"].to_numpy() for table in looked])
    places = np.flatnonzero(kept)
    # Ties, which hardly occur, in the order of the table.
    over = places[np.argsort(keys[places], kind="stable")[most:]]
    whole = pa.chunked_array(reasons, pa.string()).to_numpy(zero_copy_only=False)
    whole[over] = f"not among the {most:,} rows drawn"
    ends = np.cumsum([len(reason) for reason in reasons])
    return [pa.array(part, pa.string()) for part in np.split(whole, ends[:-1])]


def counts_of(reasons: Sequence[pa.Array]) -> dict[str, Any]:
    """Return the number of selected rows, and of the others by reason."""
    counted: Counter[str | None] = Counter()
    for part in reasons:
        counted.update({row["values"]: row["counts"] for row in part.value_counts().to_pylist()})
    selected = counted.pop(None, 0)
    return {"selected": selected, "not_selected": {str(k): n for k, n in counted.most_common()}}


def described(counts: dict[str, Any]) -> str:
    """Return the counts of a selection as one line of text."""
    left = counts["not_selected"]
    # The manifest has the reasons in alphabetical order.
    ordered = sorted(left.items(), key=lambda item: (-item[1], item[0]))
    reasons = ", ".join(f"{count:,}: {reason}" for reason, count in ordered)
    return f"{counts['selected']:,} rows selected, {sum(left.values()):,} not" + (
        f" ({reasons})" if reasons else ""
    )


def store(config: AnnotateConfig, table: Table, number: int) -> None:
    """Apply the rules to a part, and store the result of ``look`` in the draft."""
    write_table(Draft(config.out).folder, _part(_LOOKED, number), look(config, table, number))


def decide(config: AnnotateConfig, table: Table) -> dict[str, Any]:
    """Select rows among those of all parts, store the reasons in the draft, and count them."""
    folder, numbers = Draft(config.out).folder, range(len(table.parts))
    looked = [read_table(folder, _part(_LOOKED, number)) for number in numbers]
    reasons = choose(looked, config.select.rows)
    for number, part in zip(numbers, reasons, strict=True):
        write_table(folder, _part(_REASONS, number), pa.table({"reason": part}))
    return counts_of(reasons)


def is_selected(config: AnnotateConfig, unit: Unit) -> np.ndarray | None:
    """Return which rows of a unit are selected, from the draft. Bool, shape [rows]; None: all."""
    if not config.select.is_set:
        return None
    reasons = read_table(Draft(config.out).folder, _part(_REASONS, unit.part))["reason"]
    return mask(reasons.combine_chunks(), unit)


def _part(folder: str, number: int) -> str:
    return f"{folder}/{number:06d}.parquet"


def mask(reasons: pa.Array, unit: Unit) -> np.ndarray:
    """Return which rows of a unit are selected: those without a reason. Bool, shape [rows].

    Args:
        reasons: Reason why each row of the unit's part is not selected; null if it is selected.
        unit: A range of rows of the part.
    """
    selected: np.ndarray = (
        reasons.slice(unit.first, unit.rows).is_null().to_numpy(zero_copy_only=False)
    )
    return selected


def _rows(config: AnnotateConfig, table: Table, part: TablePart, reads: list[str]) -> pa.Table:
    """Return the columns of a part that rules read, and its ids."""
    folders = config.select.columns
    own = [name for name in reads if name not in _names_in(folders, part)]
    # As in a corpus: what an article has too is read from the article.
    of_articles = _is_harvest(table) and bool(
        set(own) - (set(table.names) - set(pairs.ARTICLE_COLUMNS))
    )
    if of_articles:
        whole = HarvestPart(table.uri, part.path, tuple(folders), (), ())
        return steps.candidates_of(whole, "caption")
    names = [*own, *([table.id_column] if table.id_column else [])]
    folder = Folder(table.uri)
    found = read_table(folder, part.path, list(dict.fromkeys(names)))
    for uri in folders:
        wanted = [name for name in reads if name in _schema(uri, part).names]
        for name, column in zip(wanted, read_table(Folder(uri), part.name, wanted), strict=True):
            found = found.append_column(name, column)
    return found


def _schema(uri: str, part: TablePart) -> pa.Schema:
    folder = Folder(uri)
    with folder.filesystem.open_input_file(folder.at(part.name)) as stream:
        return pq.read_schema(stream)


def _names_in(folders: Sequence[str], part: TablePart) -> set[str]:
    return {name for uri in folders for name in _schema(uri, part).names}


def _is_harvest(table: Table) -> bool:
    """Return whether a table is figures or panels, with the columns of a corpus's candidates."""
    return table.parts[0].path.startswith(PARTS)
