"""Cross-modal retrieval: image to text and text to image.

Every image and every text is a query against the whole pool, with exact search. Equal texts are one
target; a query may retrieve any of its texts or images (``ranks``), as CLIP_benchmark counts
the five captions of Flickr30k. For ties see ``ranks.hits``. Scores are also reported by
text length, concept and licence, each against the same pool.

Source:
    BiomedCLIP (arXiv:2303.00915), figure 2: recall at 1, 5, 10 of 725,739 pairs. BIOMEDICA
    (arXiv:2501.07171), sections 5 and 16.2: recall at 1, 10, 100, and performance by caption
    length, without stating the bins; ours end at the context lengths of its models.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from biovl.benchmark import bootstrap
from biovl.benchmark import data as opening
from biovl.benchmark import ranks as ranking
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.selection import unique
from biovl.benchmark.tasks import EmbeddedBenchmark, Score, TaskOutcome
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin
from biovl.models.clip_tokens import clip_token_counts

# Shapes: N readable images, M texts of them.

KS = (1, 5, 10, 50, 100)

NDCG_K = 10
"""Cut-off of nDCG, as in MTEB's main score; reported if every query has one match."""

TOKENS = ((1, 16), (17, 32), (33, 75), (76, 152), (153, 510), (511, None))
"""Bins of text length in CLIP tokens, without start and end token: 75 fit a context of 77, 152 one
of 154, 510 one of 512. Shorter texts, the majority of captions, have narrower bins."""

DIRECTIONS = ("image_to_text", "text_to_image")

_BY = (("global_concepts", "concept"), ("license_group", "licence"))


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of retrieval: pairs and metrics."""

    corpus: str = ""
    """A corpus published by assemble, local or ``s3://``. Set either ``corpus`` or ``data``."""
    data: str | Plugin = ""
    """Other pairs: a folder, or a dataset plug-in with its settings (``{"name": "reports", "path":
    "…"}``)."""
    split: str = "test"
    """Split of ``corpus``: ``train``, ``val`` or ``test``."""
    ks: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = KS
    """Values of k for recall@k; those larger than the pool are left out."""
    resamples: int = bootstrap.RESAMPLES
    """Bootstrap resamples of the confidence intervals."""
    seed: int = 0
    """Seed of the confidence intervals."""


def build(config: Config) -> "Retrieval":
    """Return the task for a configuration."""
    return Retrieval(config)


class Retrieval:
    """The benchmark task of cross-modal retrieval."""

    needs_text = True

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> Pairs:
        """Return the image-text pairs to retrieve from.

        Raises:
            ConfigError: If not exactly one of ``corpus`` and ``data`` is set.
            ArtifactError: If the pairs cannot be read.
        """
        config = self.config
        if bool(config.corpus) == bool(config.data):
            raise ConfigError("retrieval needs pairs: set either corpus or data")
        if config.data:
            return opening.open_pairs(config.data)
        corpus = {"path": config.corpus, "split": config.split}
        return opening.open_pairs(Plugin("corpus", corpus))

    def evaluate(self, data: Pairs, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Search in both directions, and return the metrics.

        Unreadable images are neither queries nor targets.

        Raises:
            ArtifactError: If no image is readable.
            ConfigError: If all ks exceed the number of images.
        """
        rows = np.array([n for n in range(len(data.ids)) if n not in embedded.unreadable])
        if not len(rows):
            raise ArtifactError(f"no image of {data.name} is readable")
        own_texts, pair_P2 = _readable(data, rows)
        text_of_image_N, further_F2 = pair_P2[: len(rows), 1], pair_P2[len(rows) :]
        texts = [data.texts[number] for number in own_texts]
        text_MD = embedded.text(data.texts)[own_texts]
        ranks = ranking.places(embedded.image_ND[rows], text_MD, text_of_image_N, further_F2)
        if min(self.config.ks) > len(rows):
            raise ConfigError(
                f"ks: {data.name} has {len(rows)} readable images, fewer than the least k, "
                f"{min(self.config.ks)}"
            )
        first_of_text = pair_P2[np.unique(pair_P2[:, 1], return_index=True)[1], 0]
        ids = [data.ids[row] for row in rows]
        # The id of a text is that of its first image, numbered if that has several texts.
        text_ids = unique(data.ids[row] for row in rows[first_of_text])
        tables = [
            _queries(name, own, ranks_of, self.config.ks, items, matches)
            for name, own, ranks_of, items, matches in zip(
                DIRECTIONS,
                (ids, text_ids),
                ranks,
                (len(texts), len(rows)),
                (np.bincount(pair_P2[:, column]) for column in (0, 1)),
                strict=True,
            )
        ]
        tokens_M = clip_token_counts(texts)
        groups = [
            _groups(tokens_M[text_of_image_N], data.about.take(rows)),
            _groups(tokens_M, data.about.take(rows[first_of_text])),
        ]
        predictions = pa.concat_tables(
            [
                table.append_column("parts", _parts(len(table), of)).append_column("images", images)
                for table, of, images in zip(tables, groups, _images(ids, pair_P2), strict=True)
            ],
            promote_options="default",
        )
        scores = [*_scores(tables, None, self.config), *_broken_down(tables, groups, self.config)]
        notes: dict[str, Any] = {
            "images": len(rows),
            "texts": len(texts),
            "unreadable": len(embedded.unreadable),
            "left_out": dict(data.left_out),
            "chance": _chance(pair_P2, (len(rows), len(texts)), self.config.ks),
            "clip_tokens": _statistics(tokens_M),
        }
        if embedded.truncated is not None:
            notes["truncated_share"] = float(embedded.truncated(texts).mean())
            notes["context"] = embedded.context
        return TaskOutcome(scores=tuple(scores), predictions=predictions, notes=notes)


def _readable(data: Pairs, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the texts of some images, and the pairs of both: first texts, then further ones.

    Args:
        data: Pairs.
        rows: Some of its images.

    Returns:
        Indices of the texts. int64, [M]. Pairs of positions in ``rows`` and in these. int64,
        [P, 2].
    """
    position_N = np.full(len(data.ids), -1, np.int64)
    position_N[rows] = np.arange(len(rows))
    first_N2 = np.stack([rows, data.text_of_image[rows]], axis=1)
    further_F2 = data.further_F2[position_N[data.further_F2[:, 0]] >= 0]
    pair_P2 = np.concatenate([first_N2, further_F2])
    own_texts, text_P = np.unique(pair_P2[:, 1], return_inverse=True)
    return own_texts, np.stack([position_N[pair_P2[:, 0]], text_P.reshape(-1)], axis=1)


def _images(ids: Sequence[str], pair_P2: np.ndarray) -> tuple[pa.Array, pa.Array]:
    """Return the ids of the images of each query's pairs, for image and for text queries."""
    of_text: dict[int, list[str]] = {}
    for image, text in sorted(pair_P2.tolist()):
        of_text.setdefault(text, []).append(ids[image])
    lists = [[own] for own in ids], [of_text[text] for text in sorted(of_text)]
    of_images, of_texts = (pa.array(one, pa.list_(pa.string())) for one in lists)
    return of_images, of_texts


def _chance(pair_P2: np.ndarray, items: tuple[int, int], ks: Sequence[int]) -> dict[str, float]:
    """Return the recall of random guessing, by the name of the score."""
    images, texts = items
    levels = {}
    for direction, column, pool in zip(DIRECTIONS, (0, 1), (texts, images), strict=True):
        guessed = ranking.chance_ranks(np.bincount(pair_P2[:, column]), pool)
        for k in ks:
            if k <= pool:
                name = f"{direction}_recall_at_{k}"
                levels[name] = float(ranking.hits(guessed, k).mean())
    return levels


def _queries(
    direction: str,
    ids: Sequence[str],
    ranks: ranking.MatchRanks,
    ks: Sequence[int],
    items: int,
    matches: np.ndarray,
) -> pa.Table:
    """Return one row per query: the rank of its match, and its contribution to each metric."""
    columns: dict[str, Any] = {
        "id": pa.array([f"{direction}/{own}" for own in ids], pa.string()),
        "nearer": pa.array(ranks.nearer_N),
        "tied": pa.array(ranks.tied_N),
        # A slash, as it is no score: scores of the name of a column are its mean.
        "rank/expected": pa.array(ranking.expected_ranks(ranks)),
    }
    for k in ks:
        if k <= items:
            columns[f"{direction}_recall_at_{k}"] = pa.array(ranking.hits(ranks, k))
    columns[f"{direction}_mrr"] = pa.array(ranking.reciprocal_ranks(ranks))
    if matches.max() == 1:
        # With several matches it depends on the ranks of all.
        columns[f"{direction}_ndcg_at_{NDCG_K}"] = pa.array(ranking.ndcg(ranks, NDCG_K))
    return pa.table(columns)


def _scores(
    tables: Sequence[pa.Table], rows: Sequence[np.ndarray] | None, config: Config, part: str = ""
) -> Iterator[Score]:
    estimated = partial(Score.estimated, resamples=config.resamples, seed=config.seed)
    for number, (direction, table) in enumerate(zip(DIRECTIONS, tables, strict=True)):
        some = table if rows is None else table.take(rows[number])
        if not len(some):
            continue
        for name in some.column_names[4:]:
            yield estimated(name + part, some[name].to_numpy())
        name, rank_N = f"{direction}_median_rank{part}", some["rank/expected"].to_numpy()
        yield estimated(name, rank_N, bootstrap.median)


def _broken_down(
    tables: Sequence[pa.Table], groups: Sequence[Mapping[str, np.ndarray]], config: Config
) -> Iterator[Score]:
    for part in groups[0]:
        rows = [groups[0][part], groups[1].get(part, np.array([], np.int64))]
        yield from _scores(tables, rows, config, f"/{part}")


def _groups(tokens_N: np.ndarray, about: pa.Table) -> dict[str, np.ndarray]:
    """Return rows by subset: ``tokens 33-75``, ``concept Microscopy``, ``licence commercial``."""
    groups: dict[str, np.ndarray] = {}
    for low, high in TOKENS:
        inside = np.flatnonzero((tokens_N >= low) & (tokens_N <= (high or np.inf)))
        if len(inside):
            groups[f"tokens {low}-{high}" if high else f"tokens {low} and more"] = inside
    for column, name in _BY:
        if column not in about.column_names:
            continue
        values: dict[str, list[int]] = {}
        for row, value in enumerate(about[column].to_pylist()):
            for one in value if isinstance(value, list) else [value]:
                values.setdefault(str(one), []).append(row)
        for one in sorted(values.keys() - {"None", ""}):
            groups[f"{name} {one}"] = np.array(values[one], np.int64)
    return groups


def _parts(rows: int, groups: Mapping[str, np.ndarray]) -> pa.Array:
    """Return the names of the subsets that each query belongs to."""
    parts_of: list[list[str]] = [[] for _ in range(rows)]
    for part, inside in groups.items():
        for row in inside:
            parts_of[row].append(part)
    return pa.array(parts_of, pa.list_(pa.string()))


def _statistics(tokens_M: np.ndarray) -> dict[str, float]:
    return {
        "min": int(tokens_M.min()),
        "median": float(np.median(tokens_M)),
        "mean": float(tokens_M.mean()),
        "max": int(tokens_M.max()),
    }
