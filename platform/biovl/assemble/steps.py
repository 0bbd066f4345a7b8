"""The steps from figures to shards, as functions of folders, independent of Ray.

Every step writes Parquet or tar files to the draft of the corpus, which the next step reads.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.assemble import balance, duplicates, not_applied, rules, splits
from biovl.assemble import pairs as pairing
from biovl.assemble.config import AssembleConfig, TextChoice
from biovl.assemble.not_applied import LOOKS_ALIKE, SAME_FILE
from biovl.assemble.statistics import SPLITS
from biovl.core import records, shards
from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.harvests import HarvestPart, Tombstones
from biovl.core.tables import open_part, read_table, write_table
from biovl.images.encode import for_training

NO_IMAGE, TOO_MANY = "no image", "over-represented"
LEAKED = "near duplicate of a benchmark's image"
"""Name of the rules that reject figures listed as leaks."""

_CANDIDATES, _DECISIONS = ".draft/candidates", ".draft/decisions"
_RUNS, _PLANS, _PLACES = ".draft/runs", ".draft/plans", ".draft/places"

ENDED = "ended_by_tombstone"
DERIVED = ("superseded", "uncaptioned")
"""Columns for rules that ``decide`` computes from all rows."""
RESERVED_COLUMNS = ("pair_id", "split", "shard", "offset", "size", *DERIVED, ENDED)
"""Columns that ``decide`` and later steps add to the candidates."""

# Columns for duplicates and splits, in addition to those that the rules read.
_DECIDING = (
    f"figure_id article_id {pairing.GROUP} source_uri version defect "
    f"image_sha256 phash width_px height_px caption_chars {ENDED}"
).split()
_NOT_IN_INDEX = (
    *("text", "mention_texts", "caption_bold", "caption_superscripts", "defect", ENDED),
    *(*pairing.LONG_TEXTS, "context_sources", "long_caption_steps"),
)
_RUN = pa.schema(
    [
        pa.field("row", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("defect", pa.string()),
    ]
)
_PLAN = pa.schema([pa.field(name, pa.int64()) for name in ("part", "row", "offset", "size")])


def join_columns(config: AssembleConfig, parts: Sequence[HarvestPart], number: int) -> None:
    """Join one part of the figures with its articles and columns, and store the candidates."""
    part = parts[number]
    found = candidates_of(
        *(part, config.text, config.embeddings), count_tokens=config.full_text_tokens
    )
    found = found.append_column(ENDED, Tombstones(part.later).of(found["source_uri"]))
    write_table(Draft(config.out).folder, _of_part(_CANDIDATES, number), found)


def candidates_of(
    part: HarvestPart,
    text: TextChoice,
    embeddings: Collection[str] = (),
    *,
    count_tokens: bool = False,
) -> pa.Table:
    """Return a part of the figures with its articles and columns, without reading images.

    Args:
        part: Part of a harvest.
        text: Source of a pair's text.
        embeddings: Embedding columns to include; other embedding columns are left out.
        count_tokens: Whether to count the tokens of the articles' full texts.

    Raises:
        ArtifactError: If a column is missing, or a folder of columns has other rows.
    """
    source = Folder(part.uri)
    unit = part.name.removeprefix("part-").partition("-")[0]
    figures = _figures(source, part.path)
    # One part of articles at a time, reduced to the referenced articles: a unit may be an archive
    # of a hundred thousand articles.
    articles = pa.concat_tables(
        pairing.article_facts(_articles(part, name), figures, count_tokens=count_tokens)
        for name in source.names("articles", ".parquet")
        if name.startswith(f"part-{unit}-")
    )
    extra = records.extra_columns(figures.schema)
    tables = [figures.select(extra)] if extra else []
    for folder in part.columns:
        added = read_table(Folder(folder), part.name)
        if len(added) != len(figures):
            raise ArtifactError(
                f"{folder}/{part.name} has {len(added)} rows and {part.path} of {part.uri} has "
                f"{len(figures)}: they do not belong together"
            )
        tables.append(added)
    written = [table[text].to_pylist() for table in tables if text in table.column_names]
    found = pairing.candidates(figures, articles, text, *written)
    for added in tables:
        for name in added.column_names:
            # Most embeddings are for clustering alone.
            if name in embeddings or not pairing.is_vector(added.schema.field(name).type):
                found = found.append_column(added.schema.field(name), added[name])
    return found


def _figures(source: Folder, path: str) -> pa.Table:
    """Read a part of the figures; columns missing from older versions become null."""
    with open_part(source, path) as parquet:
        existing = set(parquet.schema_arrow.names)
        absent = [name for name in pairing.FIGURE_COLUMNS if name not in existing]
        names = [*pairing.FIGURE_COLUMNS, pairing.PANEL_BOX]
        names += records.extra_columns(parquet.schema_arrow)
        figures = parquet.read([name for name in names if name in existing])
    if set(absent) - {pairing.GROUP, pairing.LICENSE_URL}:
        raise ArtifactError(
            f"{source.uri}/{path} has no column {', '.join(absent)}: it was not written by harvest"
        )
    for name in absent:
        figures = figures.append_column(name, pa.nulls(len(figures), pa.string()))
    return figures


def _articles(part: HarvestPart, name: str) -> pa.Table:
    """Read a part of the articles, with PubMed's metadata if they were enriched."""
    articles = read_table(Folder(part.uri), f"articles/{name}", pairing.ARTICLE_COLUMNS)
    for uri in part.article_columns:
        answers = read_table(Folder(uri), name)
        if len(answers) != len(articles):
            raise ArtifactError(
                f"{uri}/{name} has {len(answers)} rows and articles/{name} of {part.uri} has "
                f"{len(articles)}: they do not belong together"
            )
        articles = pairing.with_pubmed(articles, answers)
    return articles


def decide(
    config: AssembleConfig, row_rules: Sequence[rules.Rule], parts: int, labels: Sequence[str]
) -> dict[str, Any]:
    """Select the rows of the corpus, from short columns of all parts at once.

    Args:
        config: Configuration of the job.
        row_rules: The rules.
        parts: Number of parts.
        labels: Columns whose values are counted.

    Returns:
        ``figures`` and ``eligible``: rows by column of ``labels`` and value, of all figures and of
        those that passed all but balancing; the ``cap`` of balancing, if any; and
        ``not_applied``, see ``not_applied.count``.
    """
    folder = Draft(config.out).folder
    wanted = dict.fromkeys(
        [
            *(*_DECIDING, *labels, *not_applied.columns_read(config)),
            *(name for rule in row_rules for name in rule.reads),
        ]
    )
    columns = [name for name in wanted if name not in DERIVED]
    tables = [_read(folder, _CANDIDATES, number, columns) for number in range(parts)]
    found = pa.concat_tables(tables)
    found = found.append_column("superseded", pa.array(_superseded(found), pa.bool_()))
    found = found.append_column("uncaptioned", _uncaptioned(found))
    rejected = _rejections(config, found, row_rules)
    duplicate_of = _reject_duplicates(config, found, rejected)
    eligible = np.flatnonzero(_is_none(rejected))
    needed = [*labels, "article_id", pairing.GROUP, "figure_id"]
    of_eligible = found.select(list(dict.fromkeys(needed))).take(pa.array(eligible))
    counted: dict[str, Any] = {
        "figures": {name: balance.counts(found[name]) for name in labels},
        "eligible": {name: balance.counts(of_eligible[name]) for name in labels},
    }
    if config.balance.is_set:
        kept_by = balance.balance_labels(
            of_eligible[config.balance.column],
            pairing.whole_of(of_eligible).to_pylist(),
            of_eligible["figure_id"].to_pylist(),
            cap=config.balance.cap,
            target=config.balance.target,
            seed=config.seed,
        )
        rejected[eligible] = [name and f"{TOO_MANY}: {name}" for name in kept_by.over]
        counted["cap"] = kept_by.cap

    stay = np.flatnonzero(_is_none(rejected))
    split = np.full(len(found), None, object)
    split[stay] = _splits(config, found, stay)
    pairs = found.select(not_applied.columns_read(config)).take(pa.array(stay))
    counted["not_applied"] = not_applied.count(config, pairs, split[stay])
    decisions = pa.table(
        {
            "rejected_by": pa.array(rejected, pa.string()),
            "duplicate_of": pa.array(duplicate_of, pa.string()),
            "split": pa.array(split, pa.string()),
        }
    )
    start = 0
    for number, table in enumerate(tables):
        write_table(folder, _of_part(_DECISIONS, number), decisions.slice(start, len(table)))
        start += len(table)
    return counted


def _rejections(
    config: AssembleConfig, found: pa.Table, row_rules: Sequence[rules.Rule]
) -> np.ndarray:
    """Return the reason to reject each row apart from duplicates, or None. object, shape [N]."""
    rejected: np.ndarray = rules.rejections(found, row_rules).to_numpy(zero_copy_only=False).copy()
    # Tombstones of later harvests take precedence over rules.
    tombstones = found[ENDED].to_numpy(zero_copy_only=False)
    over = ~_is_none(tombstones)
    rejected[over] = [f"tombstone: {reason}" for reason in tombstones[over]]
    # Required independently of the rules: without an image there is nothing to train on.
    imageless = (found["width_px"].is_null().to_numpy()) & _is_none(rejected)
    rejected[imageless] = NO_IMAGE
    is_eligible, max_distance = _is_none(rejected), config.duplicates.max_distance
    rejected[_repeats_of_leaks(found, row_rules, is_eligible, max_distance)] = LEAKED
    return rejected


def _reject_duplicates(config: AssembleConfig, found: pa.Table, rejected: np.ndarray) -> np.ndarray:
    """Reject duplicates in place; return the id of the image that each duplicates, or None."""
    ids, content = found["figure_id"].to_numpy(), found["image_sha256"].to_numpy()
    duplicate_of = np.full(len(ids), None, object)
    kept = np.flatnonzero(_is_none(rejected))
    if config.duplicates.exact:
        stands_for = kept[
            not_applied.representatives(
                found.take(pa.array(kept)),
                near=config.duplicates.near,
                max_distance=config.duplicates.max_distance,
            )
        ]
        repeats = stands_for != kept
        gone, survivor = kept[repeats], stands_for[repeats]
        duplicate_of[gone] = ids[survivor]
        rejected[gone] = np.where(content[gone] == content[survivor], SAME_FILE, LOOKS_ALIKE)
    return duplicate_of


def _splits(config: AssembleConfig, found: pa.Table, stay: np.ndarray) -> list[str]:
    """Return the split of the rows ``stay``."""
    wholes = pairing.whole_of(found).take(pa.array(stay)).to_pylist()
    split_of = splits.splits_of(
        wholes,
        val_permyriad=config.split.val_permyriad,
        test_permyriad=config.split.test_permyriad,
        least=config.split.least_articles,
        most=config.split.most_articles,
    )
    return [split_of[whole] for whole in wholes]


def encode(config: AssembleConfig, parts: Sequence[HarvestPart], number: int) -> None:
    """Write one part's selected pairs to a run: a tar like the shards, and its offsets."""
    part = parts[number]
    folder = Draft(config.out).folder
    about = _read(folder, _CANDIDATES, number)
    vectors = about.select(config.embeddings)
    about = about.drop_columns(config.embeddings)
    selected = np.flatnonzero(_read(folder, _DECISIONS, number)["split"].is_valid().to_numpy())
    entries: list[dict[str, Any]] = []
    with folder.writer(f"{_RUNS}/{number:06d}.tar") as stream:
        run = shards.ShardWriter(stream)
        for row, image in _images(Folder(part.uri), part.path, selected):
            encoded = for_training(
                image,
                short_side_px=config.image.short_side_px,
                jpeg_quality=config.image.jpeg_quality,
            )
            defect = encoded.defect or pairing.missing_embedding(vectors, row)
            entry = {"row": row, "offset": None, "size": None, "defect": defect}
            if defect is None:
                (texts,) = about.slice(row, 1).to_pylist()
                place = run.add(
                    texts["figure_id"],
                    {
                        encoded.suffix: encoded.data,
                        "txt": texts["text"].encode(),
                        "json": pairing.pair_json(texts),
                        **pairing.embedding_files(vectors, row),
                    },
                )
                entry |= {"offset": place.offset, "size": place.size}
            entries.append(entry)
        run.finish()
    write_table(folder, _of_part(_RUNS, number), pa.Table.from_pylist(entries, _RUN))


def plan(config: AssembleConfig, parts: int) -> dict[str, int]:
    """Assign the encoded pairs to shards, and write a plan for each.

    Returns:
        The number of shards of each split.
    """
    folder = Draft(config.out).folder
    pieces: dict[str, list[pa.Table]] = {split: [] for split in SPLITS}
    for number in range(parts):
        run = _read(folder, _RUNS, number)
        run = run.filter(run["defect"].is_null())
        ids = _read(folder, _CANDIDATES, number, ["figure_id", "article_id", pairing.GROUP])
        ids = ids.append_column("split", _read(folder, _DECISIONS, number)["split"])
        ids = ids.take(run["row"])
        piece = run.select(["row", "offset", "size"])
        piece = piece.add_column(0, "part", pa.array(np.full(len(run), number, np.int64)))
        for name in ids.column_names:
            piece = piece.append_column(name, ids[name])
        for split in SPLITS:
            pieces[split].append(piece.filter(pc.equal(piece["split"], split)))
    counts: dict[str, int] = {}
    for split in SPLITS:
        pairs = pa.concat_tables(pieces[split])
        layout = splits.lay_out(
            splits.shuffle_keys(pairing.whole_of(pairs).to_pylist(), config.seed),
            splits.shuffle_keys(pairs["figure_id"].to_pylist(), config.seed),
            pairs["size"].to_numpy(),
            max_bytes=config.shard.size_mb * 1_000_000,
            max_pairs=config.shard.pairs,
        )
        counts[split] = int(layout.shard.max()) + 1 if len(pairs) else 0
        order = np.lexsort((layout.place, layout.shard))
        ends = np.searchsorted(layout.shard[order], np.arange(counts[split] + 1))
        for number in range(counts[split]):
            rows = pa.array(order[ends[number] : ends[number + 1]])
            table = pairs.select(_PLAN.names).take(rows)
            write_table(folder, f"{_PLANS}/{shards.shard_name(split, number)}.parquet", table)
    return counts


def shard(config: AssembleConfig, names: Sequence[str], number: int) -> dict[str, int]:
    """Write one shard: copy its pairs from the runs, in shuffled order.

    Args:
        config: Configuration of the job.
        names: Paths of all shards, without suffix.
        number: Number of the shard to write.

    Returns:
        Its ``rows``, which are pairs, and ``size_bytes``.
    """
    folder = Draft(config.out).folder
    name = names[number]
    planned = read_table(folder, f"{_PLANS}/{name}.parquet")
    with folder.writer(f"{name}.tar") as stream:
        target = shards.ShardWriter(stream)
        places = (
            (f"{_RUNS}/{row['part']:06d}.tar", row["offset"], row["size"])
            for row in planned.to_pylist()
        )
        offsets = shards.copy_pairs(folder, target, places)
        size_bytes = target.finish()
    placed = planned.set_column(2, "offset", pa.array(offsets, pa.int64()))
    write_table(folder, f"{_PLACES}/{name}.parquet", placed)
    return {"rows": len(offsets), "size_bytes": size_bytes}


def index(config: AssembleConfig, parts: int, shards_of: Mapping[str, int]) -> Iterator[pa.Table]:
    """Yield the index part by part: the metadata of every pair, and its shard, offset and size."""
    folder = Draft(config.out).folder
    placed = []
    for name in shards.shard_names(shards_of):
        table = read_table(folder, f"{_PLACES}/{name}.parquet")
        split = name.partition("/")[0]
        table = table.append_column("split", pa.array([split] * len(table)))
        placed.append(table.append_column("shard", pa.array([f"{name}.tar"] * len(table))))
    empty = _PLAN.empty_table()
    for name in ("split", "shard"):
        empty = empty.append_column(name, pa.array([], pa.string()))
    # Without pairs the index still exists, without rows.
    places = pa.concat_tables([empty, *placed]).sort_by(
        [("part", "ascending"), ("row", "ascending")]
    )
    ends = np.searchsorted(places["part"].to_numpy(), np.arange(parts + 1))
    for number in range(parts):
        here = places.slice(ends[number], ends[number + 1] - ends[number])
        about = _read(folder, _CANDIDATES, number)
        omitted = [*_NOT_IN_INDEX, *config.embeddings]
        about = about.drop_columns([n for n in omitted if n in about.column_names])
        about = about.take(here["row"])
        about = about.add_column(0, "pair_id", about["figure_id"])
        for name in ("split", "shard", "offset", "size"):
            about = about.append_column(name, here[name])
        yield about


def dropped_figures(config: AssembleConfig, parts: int) -> Iterator[pa.Table]:
    """Yield the figures left out, part by part: the reason, and the pair a duplicate repeats."""
    folder = Draft(config.out).folder
    for number in range(parts):
        about = _read(folder, _CANDIDATES, number, ["figure_id", "article_id"])
        decisions = _read(folder, _DECISIONS, number)
        reasons = decisions["rejected_by"].to_pylist()
        for failed in _read(folder, _RUNS, number).to_pylist():
            reasons[failed["row"]] = reasons[failed["row"]] or failed["defect"]
        about = about.append_column("dropped_by", pa.array(reasons, pa.string()))
        about = about.append_column("duplicate_of", decisions["duplicate_of"])
        yield about.filter(about["dropped_by"].is_valid())


def _superseded(found: pa.Table) -> np.ndarray:
    """Return for each figure whether its article is superseded by a newer version."""
    # Old and new rows of a changed article share an address; they differ by harvest.
    ended_rows = found[ENDED].is_valid().to_numpy()
    addresses = found["source_uri"].to_numpy()
    uris, first, article_of = np.unique(
        np.where(ended_rows, addresses + "\0ended", addresses),
        return_index=True,
        return_inverse=True,
    )
    usable = np.zeros(len(uris), bool)
    np.logical_or.at(usable, article_of, found["defect"].is_null().to_numpy() & ~ended_rows)
    # In the order of the source, so that the first of equal versions is kept.
    order = np.argsort(first)
    rows = pa.array(first[order])
    gives_way = np.zeros(len(uris), bool)
    gives_way[order] = duplicates.superseded(
        found["article_id"].take(rows).to_pylist(),
        found["version"].take(rows).to_pylist(),
        usable[order],
    )
    return gives_way[article_of]


def _repeats_of_leaks(
    found: pa.Table,
    row_rules: Sequence[rules.Rule],
    is_eligible: np.ndarray,
    max_distance: int,
) -> np.ndarray:
    """Return the eligible rows that duplicate a listed leak, whose place they would take.

    A report made with an index lists only figures that survived deduplication.
    """
    leaks = [rule for rule in row_rules if rule.name == LEAKED]
    if not leaks:
        return np.empty(0, np.int64)
    is_listed = rules.rejections(found, leaks).is_valid().to_numpy(zero_copy_only=False)
    has_image = pc.and_(found["width_px"].is_valid(), found["image_sha256"].is_valid()).to_numpy()
    compared = np.flatnonzero(has_image & (is_listed | is_eligible))
    images = found.take(pa.array(compared))
    is_repeated = duplicates.duplicates_of_listed(
        is_listed[compared],
        duplicates.hash_bits(images["image_sha256"].to_pylist()),
        duplicates.hash_bits(images["phash"].to_pylist()),
        images["width_px"].to_numpy(),
        images["height_px"].to_numpy(),
        max_distance=max_distance,
    )
    repeats = compared[is_repeated]
    return np.asarray(repeats[is_eligible[repeats]])


def _uncaptioned(found: pa.Table) -> pa.ChunkedArray:
    """Return for each figure whether its article has a figure without a caption."""
    bare = found.filter(pc.and_(pc.equal(found["caption_chars"], 0), found[ENDED].is_null()))
    return pc.is_in(found["source_uri"], bare["source_uri"].combine_chunks())


def _images(source: Folder, part: str, selected: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """Yield the selected rows of a part with their images, one row group in memory at a time."""
    with open_part(source, part) as parquet:
        start = 0
        for group in range(parquet.num_row_groups):
            rows = parquet.metadata.row_group(group).num_rows
            here = selected[(selected >= start) & (selected < start + rows)]
            if len(here):
                images = parquet.read_row_group(group, columns=["image"])["image"]
                for row in here:
                    yield int(row), images[int(row) - start].as_py()
            start += rows


def _is_none(values: np.ndarray) -> np.ndarray:
    return np.array([value is None for value in values], bool)


def _read(folder: Folder, name: str, number: int, columns: Sequence[str] | None = None) -> pa.Table:
    return read_table(folder, _of_part(name, number), columns)


def _of_part(folder: str, number: int) -> str:
    return f"{folder}/{number:06d}.parquet"
