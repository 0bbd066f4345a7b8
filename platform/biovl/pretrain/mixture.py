"""The corpora of a run: what an epoch draws from each, and the pairs that are left out as leaks.

Two corpora may hold the same article in different splits. A pair of train is left out if its
article, its group or its image is in val or test of another corpus of the run.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.core.artifacts import Input, Manifest, fingerprint, read_manifest
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.filesystems import base_name, below
from biovl.core.folders import Folder
from biovl.core.shards import embedding_kind, parse_embedding, read_pair
from biovl.pretrain.config import DistillConfig, MixtureConfig, PretrainConfig
from biovl.pretrain.order import (
    PairLocations,
    concatenate_corpora,
    epoch_order,
    open_index,
    read_places,
)
from biovl.pretrain.pairs import StoredTeacher

SAME_ARTICLE = "article or group in val or test of another corpus"
SAME_IMAGE = "image in val or test of another corpus"

LENGTHS_OF_TEXT = "estimates are for the lengths of text, not of what data.text reads"

_GROUP = "group_id"
_SHARED = ("article_id", _GROUP, "image_sha256")
"""Columns of the index: pairs that share a value of one may not be in train and in val."""
"""Indexes of older corpora lack it."""


@dataclass(frozen=True, kw_only=True)
class CorpusShare:
    """A corpus of a run, and its part of an epoch."""

    uri: str
    manifest: Manifest
    pairs: int
    """Pairs of train, without those left out."""

    draws: int
    """Pairs that an epoch draws from it."""

    left_out: dict[str, int]
    """Pairs of train that are left out, by reason."""

    @property
    def label(self) -> str:
        """Name of the folder, without its location."""
        return base_name(self.uri)

    def counts(self) -> dict[str, Any]:
        """Return its counts for the manifest of a model."""
        return {
            "corpus": self.uri,
            "pairs": self.pairs,
            "draws_per_epoch": self.draws,
            "left_out": self.left_out,
        }


@dataclass(frozen=True)
class Mixture:
    """All corpora of a run, in the order of the setting ``corpus``."""

    parts: tuple[CorpusShare, ...]

    @property
    def draws(self) -> int:
        """Number of pairs drawn per epoch, from all corpora."""
        return sum(part.draws for part in self.parts)

    @property
    def pairs(self) -> dict[str, int]:
        """Pairs of train, of all corpora, and of val, of the first one."""
        return {
            "train": sum(part.pairs for part in self.parts),
            "val": self.parts[0].manifest.counts["pairs"]["val"],
        }

    def counts(self) -> dict[str, Any]:
        """Return the counts of each of several corpora, for the manifest of a model."""
        if len(self.parts) == 1:
            return {}
        return {"corpora": [part.counts() for part in self.parts]}


def read_mixture(config: PretrainConfig) -> Mixture:
    """Return the corpora of a run. Of a single corpus only the manifest is read.

    Raises:
        ConfigError: If no pairs of a corpus are left, an epoch draws none of them, or two folders
            are the same corpus.
        ArtifactError: If a corpus is not published, or its index cannot be read.
    """
    _check_distinct(config.corpora)
    manifests = [read_manifest(uri, "corpus") for uri in config.corpora]
    pairs = [manifest.counts["pairs"]["train"] for manifest in manifests]
    left_out = [dict[str, int]() for _ in manifests]
    if len(manifests) > 1:
        for number, (uri, leak) in enumerate(zip(config.corpora, _leaks(config), strict=True)):
            left_out[number] = leak.counts(uri)
            pairs[number] -= sum(left_out[number].values())
            if not pairs[number]:
                raise ConfigError(
                    f"corpus: no training pairs of {uri} are left ({_told(left_out[number])})"
                )
    found = zip(config.corpora, manifests, pairs, draws_of(config.mixture, pairs), strict=True)
    return Mixture(
        tuple(
            CorpusShare(uri=uri, manifest=manifest, pairs=count, draws=draws, left_out=left)
            for (uri, manifest, count, draws), left in zip(found, left_out, strict=True)
        )
    )


def inputs_of(config: PretrainConfig) -> list[Input]:
    """Return the corpora of a run as inputs of its manifest.

    Raises:
        ArtifactError: If one is not published.
    """
    return [
        Input(name=name, uri=uri, fingerprint=fingerprint(uri))
        for name, uri in zip(input_names(config), config.corpora, strict=True)
    ]


def input_names(config: PretrainConfig) -> list[str]:
    """Return the names of the corpora in the manifest."""
    # The first one has the name that it has alone.
    return ["corpus", *(f"corpus {number}" for number in range(2, len(config.corpora) + 1))]


def _check_distinct(corpora: Sequence[str]) -> None:
    known: dict[str, str] = {}
    for uri in corpora if len(corpora) > 1 else ():
        other = known.setdefault(fingerprint(uri), uri)
        if other != uri:
            raise ConfigError(
                f"corpus: {other} and {uri} are the same corpus: name it once; mixture.factors "
                "draws its pairs more often"
            )


def draws_of(mixture: MixtureConfig, pairs: Sequence[int]) -> list[int]:
    """Return how many pairs an epoch draws from each corpus.

    Args:
        mixture: Factors, shares or neither.
        pairs: Number of training pairs of each corpus.

    Raises:
        ConfigError: If an epoch would draw no pair from a corpus.
    """
    if mixture.shares:
        total = sum(pairs)
        # Rounding the running sums instead of the shares makes the draws add up to all pairs.
        ends = np.rint(np.cumsum(mixture.shares) * total).astype(np.int64)
        draws = [int(count) for count in np.diff(ends, prepend=0)]
    else:
        factors = mixture.factors or (1.0,) * len(pairs)
        draws = [round(factor * count) for factor, count in zip(factors, pairs, strict=True)]
    if min(draws) < 1:
        raise ConfigError(
            f"mixture: an epoch would draw {draws} pairs of corpora with {list(pairs)}: leave out "
            "the corpus that it draws nothing of"
        )
    return draws


def read_training(config: PretrainConfig, mixture: Mixture) -> PairLocations:
    """Return the locations of all pairs to train on.

    Raises:
        ArtifactError: If an index cannot be read.
    """
    if len(mixture.parts) == 1:
        whole = read_places(config.corpora[0], "train")
        (part,) = mixture.parts
        return whole if part.draws == part.pairs else concatenate_corpora([whole], [part.draws])
    leaks = _leaks(config)
    places = [
        read_places(part.uri, "train", ~(leak.article() | leak.image()))
        for part, leak in zip(mixture.parts, leaks, strict=True)
    ]
    return concatenate_corpora(places, [part.draws for part in mixture.parts])


def text_tokens(config: PretrainConfig, mixture: Mixture) -> np.ndarray:
    """Return the number of CLIP tokens of each ``text`` of an epoch, without start and end.

    Other texts of ``data.text`` are not in the index, and not counted. If the drawn pairs differ
    between epochs, the texts are those of the first epoch. Shape [N].
    """
    places = read_training(config, mixture)
    if [part.draws for part in mixture.parts] == [part.pairs for part in mixture.parts]:
        return places.text_tokens
    order = epoch_order(places, seed=config.seed, epoch=0, run_pairs=config.data.run_pairs)
    drawn: np.ndarray = places.text_tokens[order % len(places)]
    return drawn


def describe_mixture(config: PretrainConfig, mixture: Mixture) -> list[str]:
    """Return a line for each of several corpora, and for what they lack or leave out.

    Raises:
        ConfigError: If all corpora lack a column of ``data.text``.
    """
    if len(mixture.parts) == 1:
        return check_texts(config, mixture)
    lines = [
        f"{part.uri}: {part.pairs:,} pairs, {part.draws:,} drawn an epoch "
        f"({part.draws / mixture.draws:.1%}"
        f"{''.join(f'; left out {count:,}: {why}' for why, count in part.left_out.items())})"
        for part in mixture.parts
    ]
    return [*lines, f"validation: val of {mixture.parts[0].uri}", *check_texts(config, mixture)]


def check_texts(config: PretrainConfig, mixture: Mixture) -> list[str]:
    """Return lines on ``data.text``: what is estimated without it, and what a corpus lacks.

    Raises:
        ConfigError: If all corpora lack a column.
    """
    if reads_text_alone(config):
        return []
    stored = {part.uri: _stored_texts(part.uri) for part in mixture.parts}
    lines = []
    for name, chance in config.data.text.items():
        absent = [uri for uri, names in stored.items() if name not in names]
        if chance > 0 and len(absent) == len(stored):
            raise ConfigError(
                f"data.text: none of {', '.join(absent)} stores {name}; their pairs have "
                f"{', '.join(sorted(set().union(*stored.values())))}"
            )
        if chance > 0:
            lines += [f"{uri} stores no {name}: its pairs use their text" for uri in absent]
    return [*lines, LENGTHS_OF_TEXT]


def reads_text_alone(config: PretrainConfig) -> bool:
    """Return whether a run trains on the ``text`` of pairs only, whose lengths are known."""
    return {name for name, chance in config.data.text.items() if chance > 0} == {"text"}


def find_teacher(distill: DistillConfig, corpora: Sequence[str]) -> StoredTeacher | None:
    """Return the columns and dimension of the teacher's embeddings; None without distillation.

    Reads the first pair of each corpus.

    Raises:
        ConfigError: If a corpus lacks a column of ``step.distill``, or dimensions differ.
        ArtifactError: If an embedding of a first pair is invalid.
    """
    if not distill.weight:
        return None
    dims: dict[str, int] = {}
    for uri in corpora:
        files = _first_pair(uri)
        for column in (distill.image, distill.text):
            data = files.get(embedding_kind(column))
            if data is None:
                raise ConfigError(
                    f"step.distill: {uri} stores no embeddings {column}. Compute them (biovl "
                    "annotate clip --set table=FIGURES --set weights=TEACHER, and again with "
                    "--set annotator.of=text), and store them: biovl assemble … --set "
                    f'\'columns=["DIR", …]\' --set \'embeddings=["{distill.image}", '
                    f'"{distill.text}"]\''
                )
            try:
                dims[f"{column} of {uri}"] = len(parse_embedding(data))
            except ValueError as error:
                raise ArtifactError(f"{uri}: {column} of its first pair is {error}") from error
    if len(set(dims.values())) > 1:
        found = ", ".join(f"{dim} in {where}" for where, dim in dims.items())
        raise ConfigError(f"step.distill: embeddings have different dimensions: {found}")
    return StoredTeacher((distill.image, distill.text), next(iter(dims.values())))


def merged_stats(parts: Sequence[CorpusShare]) -> dict[str, Any]:
    """Return the entries of ``stats.json`` that the model card reads, of all corpora together.

    Articles and images in two corpora count twice.
    """
    stats = [json.loads(Folder(part.uri).read("stats.json")) for part in parts]
    if len(stats) == 1:
        return dict(stats[0])
    return {
        "corpus": {
            name: sum(each["corpus"][name] for each in stats) for name in ("articles", "images")
        },
        "licenses": _summed([each["licenses"] for each in stats], "license_group", "license"),
        "license_groups": _summed([each["license_groups"] for each in stats], "license_group"),
        "journals": {
            "articles_without": sum(each["journals"]["articles_without"] for each in stats),
            "top": [row for each in stats for row in each["journals"]["top"]],
        },
    }


@dataclass(frozen=True)
class _Leak:
    """What val and test of other corpora hold, as conditions on the index of a corpus."""

    articles: pa.Array
    groups: pa.Array
    images: pa.Array
    has_groups: bool

    def article(self) -> pc.Expression:
        found = pc.field("article_id").isin(self.articles)
        return found | pc.field(_GROUP).isin(self.groups) if self.has_groups else found

    def image(self) -> pc.Expression:
        return pc.field("image_sha256").isin(self.images)

    def counts(self, uri: str) -> dict[str, int]:
        index, train = open_index(uri), pc.field("split") == "train"
        counts = {
            SAME_ARTICLE: index.count_rows(filter=train & self.article()),
            SAME_IMAGE: index.count_rows(filter=train & ~self.article() & self.image()),
        }
        return {reason: count for reason, count in counts.items() if count}


def _leaks(config: PretrainConfig) -> list[_Leak]:
    """Return for each corpus what the others hold out."""
    held = [_rows(uri, pc.field("split").isin(["val", "test"])) for uri in config.corpora]
    return [
        _leak(pa.concat_tables([each for at, each in enumerate(held) if at != number]), uri)
        for number, uri in enumerate(config.corpora)
    ]


def _leak(held: pa.Table, uri: str) -> _Leak:
    """Return what a table of ``_rows`` holds, as conditions on the index of a corpus."""
    has_groups = _GROUP in open_index(uri).schema.names
    articles, groups, images = (pc.drop_null(held[name].unique()) for name in _SHARED)
    return _Leak(articles, groups, images, has_groups)


# Trials of a sweep ask the same, and the index of 24 million pairs has two gigabytes.
@functools.lru_cache(maxsize=64)
def count_seen_val(corpus: str, others: tuple[str, ...]) -> int:
    """Return the number of a corpus's val pairs that overlap with the train split of other corpora.

    A pair overlaps if its article, group or image is in the train split of another corpus.

    Args:
        corpus: Corpus with the val pairs.
        others: Corpora that weights were trained on.

    Raises:
        ArtifactError: If the index of a corpus cannot be read.
    """
    val = _rows(corpus, pc.field("split") == "val")
    is_seen_N = np.zeros(len(val), bool)
    for uri in others:
        leak = _leak(val, uri)
        found = _rows(uri, (pc.field("split") == "train") & (leak.article() | leak.image()))
        for name in _SHARED:
            is_seen_N |= np.asarray(pc.is_in(val[name], pc.drop_null(found[name].unique())))
    return int(is_seen_N.sum())


def _rows(uri: str, where: pc.Expression) -> pa.Table:
    """Return article, group and image of some pairs of a corpus; groups are null without any."""
    index = open_index(uri, "article_id", "image_sha256")
    columns = [name for name in _SHARED if name in index.schema.names]
    rows = index.to_table(columns=columns, filter=where)
    if _GROUP not in rows.column_names:
        rows = rows.append_column(_GROUP, pa.nulls(len(rows), pa.string()))
    return pa.table({name: rows[name].cast(pa.string()) for name in _SHARED})


def _stored_texts(uri: str) -> set[str]:
    """Return the texts that the first pair of a corpus stores."""
    about = json.loads(_first_pair(uri).get("json", b"{}"))
    if not isinstance(about, dict):
        raise ArtifactError(f"{uri}: the record of its first pair is not a JSON object")
    return {"text", *about}


def _first_pair(uri: str) -> dict[str, bytes]:
    """Return the files of the first pair of train."""
    index = open_index(uri, "shard", "offset", "size")
    (first,) = index.head(
        1, columns=["shard", "offset", "size"], filter=pc.field("split") == "train"
    ).to_pylist()
    return read_pair(below(uri, first["shard"]), first["offset"], first["size"])


def _summed(tables: Sequence[Sequence[dict[str, Any]]], *keys: str) -> list[dict[str, Any]]:
    """Return articles and images by licence over several corpora, most images first."""
    sums: dict[tuple[str | None, ...], dict[str, Any]] = {}
    for row in (row for table in tables for row in table):
        key = tuple(row[name] for name in keys)
        known = sums.setdefault(key, {**dict(zip(keys, key, strict=True)), **_NONE})
        for name in _NONE:
            known[name] += row[name]
    return sorted(sums.values(), key=lambda row: -row["images"])


_NONE = {"articles": 0, "images": 0}


def _told(left_out: dict[str, int]) -> str:
    reasons = (f"{count:,}: {reason}" for reason, count in left_out.items())
    return ", ".join(reasons) or "train is empty"
