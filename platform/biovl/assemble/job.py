"""Assemble figures and columns into ``corpus/``: look, decide, encode, plan, shard.

1. look    a task per part joins figures with their articles, without reading images
2. decide  on the driver, from short columns alone: rules, duplicates, split
3. encode  a task per part writes its selected pairs to a run: a tar, and the offset of each pair
4. plan    on the driver: the shuffled order, from the offsets
5. shard   a task per shard copies its pairs from the runs

So a global shuffle reads each part once and copies each pair's bytes once, with memory bounded by
one row group. Every task leaves a receipt, from which an interrupted job resumes.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.compute as pc

from biovl.assemble import balance, finishing, rules, statistics, steps, warn
from biovl.assemble import pairs as pairing
from biovl.assemble.config import AssembleConfig
from biovl.core import records
from biovl.core.artifacts import Input, Manifest, fingerprint, read_manifest
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.folders import Folder
from biovl.core.harvests import Harvest, HarvestPart, open_harvests
from biovl.core.shards import corpus_files, shard_names
from biovl.core.tables import open_part, read_table
from biovl.runtime.connection import connect_ray
from biovl.runtime.failures import check_usable
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress
from biovl.runtime.units import Stages

KIND = "corpus"
FORMAT = 9
"""Version of the published bytes; raise it when a change alters them. See ``Draft.begin``."""

ARTICLES = "articles"
"""Names of the inputs of column folders that describe articles."""


@entry_point
def assemble(config: AssembleConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Select pairs with rules and publish them as shards with an index.

        out/
          train/00000.tar …  val/…  test/…   WebDataset: <pair_id>.jpg|png, .txt, .json
          index.parquet                      every pair: metadata, split, shard, offset and size
          dropped.parquet                    every figure left out: the reason, and its original
          README.md  stats.json  plots/      the dataset card, its statistics and plots
          manifest.json                      counts, with the reason of every drop

    Raises:
        ConfigError: If a rule or a column does not exist.
        ArtifactError: If the input is not published figures, or ``out`` holds another artifact or
            is being written by another process.
        StorageError: If a disk or bucket fails; run the job again.
    """
    report = Progress("assemble", progress)
    row_rules = rules.make_rules(config.rules)
    sources = open_harvests([config.figures, *config.updates])
    row_rules += _no_leaks(config, of_panels=sources[0].manifest.kind == "panels")
    inputs = [
        Input(name="figures" if number == 0 else "updates", uri=h.uri, fingerprint=h.fingerprint)
        for number, h in enumerate(sources)
    ]
    inputs += [
        Input(name="columns", uri=uri, fingerprint=fingerprint(uri)) for uri in config.columns
    ]
    inputs += [Input(name="leaks", uri=uri, fingerprint=fingerprint(uri)) for uri in config.leaks]
    # The rules record that retracted articles are dropped; corpora made before the setting existed
    # stay identical.
    recorded = ["retracted"] if config.retracted == "drop" else []
    if not config.embeddings:
        recorded.append("embeddings")
    job = Job.of(config, KIND, inputs, output_format=FORMAT, without=["may_be_empty", *recorded])
    published = job.find_published()
    if published is not None:
        return published
    parts, columns = _parts(config, sources)
    rules.check_columns(row_rules, [*columns.names, *steps.DERIVED])
    labels = check_columns(config, columns)
    with job.begin() as draft:
        with connect_ray():
            stages = Stages(draft, report)
            stages.run("looking at part", len(parts), steps.join_columns, (config, parts))
            decided = draft.once(
                "decided", lambda: steps.decide(config, row_rules, len(parts), labels)
            )
            stages.run("encoding part", len(parts), steps.encode, (config, parts))
            shards_of: dict[str, int] = draft.once(
                "planned", lambda: steps.plan(config, len(parts))
            )
            names = shard_names(shards_of)
            written = stages.run("writing shard", len(names), steps.shard, (config, names))
        index = steps.index(config, len(parts), shards_of)
        indexed = finishing.write_index(draft.folder, index, labels, config.text)
        left_out = steps.dropped_figures(config, len(parts))
        reasons = finishing.write_dropped(draft.folder, left_out)
        harvested = _harvested_counts(sources)
        concepts = statistics.labels(decided["figures"], decided["eligible"], indexed.labels)
        stats = statistics.statistics(
            indexed.pairs,
            harvested=harvested,
            dropped=reasons,
            labels=concepts,
            labels_by_license_group=statistics.labels_by_license_group(indexed.labels),
            not_applied=decided["not_applied"],
        )
        kept = statistics.pairs_by_split(stats)
        check_usable(
            sum(kept.values()),
            f"{harvested['figures']['seen']:,} figures of {' and '.join(h.uri for h in sources)}",
            stats["dropped"],
            may_be_empty=config.may_be_empty,
            hint="Look at rules, and at the defects that the manifest of figures counts.",
        )
        warnings = [*_warnings(sources), *warn.warnings_of(config, stats, kept)]
        report.warn(warnings)
        manifest = job.manifest(
            counts={
                "figures": {"seen": harvested["figures"]["seen"], "kept": sum(kept.values())},
                "dropped": stats["dropped"],
                "pairs": kept,
                "shards": shards_of,
                **({"texts": dict(indexed.texts.most_common())} if indexed.texts else {}),
                **({"not_applied": stats["not_applied"]} if stats["not_applied"] else {}),
                **({"labels": concepts} if concepts else {}),
            },
            files=corpus_files(draft.folder, names, written),
            notes={
                "tokens": "CLIP BPE as shipped with open_clip, without start and end tokens",
                "image": "as published; what training readers do not know or show wrongly "
                "(16 bits, transparent or turned images) as 8-bit PNG"
                if config.image.short_side_px is None
                else f"RGB JPEG, quality {config.image.jpeg_quality}, 4:4:4",
                **({"cap": decided["cap"]} if config.balance.is_set else {}),
            },
            warnings=warnings,
        )
        finishing.write_description(
            draft.folder, manifest, stats, pairing.pair_schema(columns.names)
        )
        return draft.publish(manifest)


def _warnings(sources: Sequence[Harvest]) -> list[str]:
    """Return the warnings in the manifests of the harvests."""
    return list(dict.fromkeys(text for one in sources for text in one.manifest.warnings))


def _no_leaks(config: AssembleConfig, *, of_panels: bool) -> list[rules.Rule]:
    """Return rules that reject near duplicates of benchmark images, as listed in reports.

    Args:
        config: Names the reports.
        of_panels: Whether rows are panels: those of a listed figure are rejected as well.

    Raises:
        ArtifactError: If a report was made without the search for near duplicates.
    """
    listed: set[str] = set()
    for uri in config.leaks:
        folder = Folder(uri)
        found = [name for name in read_manifest(uri, "report").files if name.startswith("leaks/")]
        if not found:
            raise ArtifactError(
                f"{uri} lists no near duplicates: its benchmark was run without index=DIR"
            )
        for name in found:
            near = read_table(folder, name, ["corpus_id", "by", "closeness"])
            by_vector = pc.equal(near["by"], "embedding")
            if config.leak_similarity is not None:
                far = pc.less(near["closeness"], config.leak_similarity)
                by_vector = pc.and_(by_vector, far)
            listed.update(near.filter(pc.invert(by_vector))["corpus_id"].to_pylist())
    if not config.leaks:
        return []
    # A report may list panels of these figures, or figures of these panels.
    parents = {figure for figure, panel, _ in (name.rpartition("_p") for name in listed) if panel}
    rejecting = [rules.not_listed("figure_id", tuple(sorted(listed | parents)), steps.LEAKED)]
    if of_panels:
        rejecting.append(rules.not_listed("parent_figure_id", tuple(sorted(listed)), steps.LEAKED))
    return rejecting


def check_columns(config: AssembleConfig, columns: pa.Schema) -> list[str]:
    """Return the label columns whose values are counted.

    Raises:
        ConfigError: If the column of ``text`` does not exist, ``balance.column`` is not a label
            column, or a column of ``embeddings`` is not an embedding column.
    """
    for name in config.embeddings:
        if name not in columns.names or not pairing.is_vector(columns.field(name).type):
            raise ConfigError(
                f"embeddings: {name} is not a column of embeddings in {list(config.columns)}; give "
                "the folder that annotate published it in: columns=[…]"
            )
    if config.text in pairing.LONG_TEXTS and config.text not in columns.names:
        raise ConfigError(
            f"text: column {config.text} does not exist; give the folder that annotate "
            "published it in: columns=[…]"
        )
    counted = [name for name in balance.LABELS if name in columns.names]
    own = config.balance.column
    if not config.balance.is_set or own in counted:
        return counted
    if own not in columns.names or not balance.is_labels(columns.field(own).type):
        has = [field.name for field in columns if balance.is_labels(field.type)]
        raise ConfigError(
            f"balance.column {own!r} is not a label column; give the folder that has it in "
            f"columns, or choose from {', '.join(sorted(has))}"
        )
    return [*counted, own]


def _parts(
    config: AssembleConfig, sources: Sequence[Harvest]
) -> tuple[list[HarvestPart], pa.Schema]:
    """Return the parts of all harvests, and the columns that rules may read.

    Raises:
        ArtifactError: If a column folder fits no harvest, or not all parts of one, or has columns
            that another harvest lacks.
    """
    of: dict[str, list[str]] = {harvest.uri: [] for harvest in sources}
    of_articles: dict[str, list[str]] = {harvest.uri: [] for harvest in sources}
    for uri in config.columns:
        made_from = read_manifest(uri, "columns").inputs
        about_articles = {item.fingerprint for item in made_from if item.name == ARTICLES}
        about_rows = {item.fingerprint for item in made_from if item.name != ARTICLES}
        fits = next((h for h in sources if h.fingerprint in about_rows), None)
        if fits is not None:
            of[fits.uri].append(uri)
            continue
        fits = next((h for h in sources if h.same_articles & about_articles), None)
        if fits is None:
            raise ArtifactError(
                f"{uri} was made from other figures than {' and '.join(h.uri for h in sources)}: "
                "expected an input with fingerprint "
                f"{' or '.join(h.fingerprint[:12] + '…' for h in sources)}, "
                f"found {', '.join(item.fingerprint[:12] for item in made_from) or None}"
            )
        of_articles[fits.uri].append(uri)
    parts: list[HarvestPart] = []
    found: dict[str, pa.Schema] = {}
    for number, harvest in enumerate(sources):
        later = tuple(other.uri for other in sources[number + 1 :])
        columns, about = tuple(of[harvest.uri]), tuple(of_articles[harvest.uri])
        own = [HarvestPart(harvest.uri, path, columns, about, later) for path in harvest.parts]
        if own:
            found[harvest.uri] = _columns(own, config.embeddings)
            parts += own
    if not found:
        return [], pairing.CANDIDATE_SCHEMA
    (first, schema), *others = found.items()
    for uri, other in others:
        if not other.equals(schema):
            differ = sorted({str(c) for c in schema} ^ {str(c) for c in other})
            raise ArtifactError(
                f"{uri} and {first} have different columns: {', '.join(differ)} of one of them "
                "alone; annotate both, and give the folders of both in columns"
            )
    return parts, schema


def _columns(parts: Sequence[HarvestPart], embeddings: Collection[str] = ()) -> pa.Schema:
    """Return the columns of one harvest's candidates; reject folders that do not fit it."""
    columns = [*pairing.CANDIDATE_SCHEMA, *_extra_columns(parts[0])]
    for uri in parts[0].columns:
        folder = Folder(uri)
        missing = {part.name for part in parts} - set(folder.names("", ".parquet"))
        if missing:
            raise ArtifactError(
                f"{uri} has no columns for {len(missing)} parts of {parts[0].uri} "
                f"({', '.join(sorted(missing)[:3])} …): it was made from another table"
            )
        with open_part(folder, parts[0].name) as file:
            added = file.schema_arrow
        existing = {column.name for column in columns}
        added = pa.schema(
            column
            for column in added
            if column.name in embeddings or not pairing.is_vector(column.type)
        )
        doubled = sorted(set(added.names) & {*existing, *steps.RESERVED_COLUMNS})
        if doubled:
            raise ArtifactError(f"{uri} has columns that already exist: {', '.join(doubled)}")
        columns += list(added)
    return pa.schema(columns)


def _extra_columns(part: HarvestPart) -> list[pa.Field]:
    """Return the columns of a harvest that its source was told to keep."""
    with open_part(Folder(part.uri), part.path) as file:
        schema = file.schema_arrow
    taken = {*pairing.CANDIDATE_SCHEMA.names, *steps.RESERVED_COLUMNS}
    doubled = sorted(set(records.extra_columns(schema)) & taken)
    if doubled:
        raise ArtifactError(
            f"{part.uri} keeps columns whose names are those of others: {', '.join(doubled)}; "
            "rename them in the table, and harvest it again"
        )
    return [schema.field(name) for name in records.extra_columns(schema)]


def _harvested_counts(sources: Sequence[Harvest]) -> dict[str, Any]:
    """Return the sum of the counts of all harvests."""
    total: dict[str, Any] = {}
    for harvest in sources:
        _add(total, harvest.manifest.counts)
    return total


def _add(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    for name, value in counts.items():
        if isinstance(value, Mapping):
            _add(total.setdefault(name, {}), value)
        elif isinstance(value, int):
            total[name] = total.get(name, 0) + value
