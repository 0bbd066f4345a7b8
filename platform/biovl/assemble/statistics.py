"""Content of ``stats.json``: the only input of the plots and of the dataset card."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.assemble.tally import (
    ARTICLE_FACTS,
    LENGTHS,
    PIXEL_BINS,
    PIXEL_BINS_PER_OCTAVE,
    SEPARATOR,
    PairTally,
    ValueCounts,
    grouped,
    numbers,
)

WINDOWS = (77, 154, 256, 512)
"""Context lengths of text towers in tokens, start and end token included (BMC-LongCLIP, fig. 1)."""

START_AND_END = 2
"""CLIP adds a start and an end token to each text; a context of 77 holds 75 tokens of it."""

TOP = 50
"""Number of journals and MeSH terms listed (BIOMEDICA, table 14)."""

TOKEN_BIN = 8
TOKEN_BINS = 128
"""Token histograms have bins of 8 tokens; the last one holds all longer texts."""

SIDES_PX = (224, 336, 512)
"""Input sizes of common image towers, in pixels."""

SPLITS = ("train", "val", "test")

CONVENTIONS = {
    "article facts": "an article without a value counts as null; of several values the first in "
    "the alphabet counts",
    "articles by licence": "an article whose images carry two licences counts under both",
    "full_text_chars": "of articles with an image here, whose text was published with them",
    "full_text_tokens": "as full_text_chars; counted only with full_text_tokens=true",
    "not_applied": "pairs of this corpus that each step of the default recipe would drop, each "
    "counted on its own; a pair may count under several",
    "iqr": "third quartile less first",
    "mention_chars": "all body paragraphs that cite an image, of images with such a paragraph",
    "panels": "images that were cut out of a figure",
    "quantiles": "linear between neighbouring values, as numpy.quantile",
    "references": "one body paragraph that cites an image; it counts once for each image",
    "std": "of the population: divided by the count",
    "tokens": "CLIP BPE, without start and end token",
    "windows": "a window of n tokens holds the start and the end token and n - 2 of a text's; the "
    "rest are wasted and the text is truncated",
}


def statistics(
    whole: PairTally,
    *,
    harvested: Mapping[str, Any],
    dropped: Mapping[str, int],
    labels: Mapping[str, Any] | None = None,
    labels_by_license_group: Mapping[str, Any] | None = None,
    not_applied: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of ``stats.json``.

    Args:
        whole: Tally of all pairs of the corpus.
        harvested: ``counts`` in the manifest of the figures: ``articles`` and ``figures``, each
            with seen, usable, defective and defects by reason, and ``mentions``.
        dropped: Figures left out, by reason: ``counts.dropped`` of the corpus's manifest.
        labels: Result of ``labels``.
        labels_by_license_group: Result of ``labels_by_license_group``.
        not_applied: Result of ``not_applied.count``: what omitted steps would drop.

    Returns:
        Plain JSON with the content of tables 6, 7, 14, 16 and 17 of BIOMEDICA and of figure 1 of
        BMC-LongCLIP for this corpus.
    """
    lengths = whole.lengths
    articles, images = _one_row_an_article(whole.articles), whole.pairs
    with_text = articles.filter(pc.greater(articles["full_text_chars"], 0))
    known = [terms for terms in articles["mesh"].to_pylist() if terms]
    mesh = pa.array([term for terms in known for term in terms.split(SEPARATOR)], pa.string())
    return {
        "conventions": CONVENTIONS,
        "harvested": dict(harvested),
        "dropped": dict(sorted(dropped.items(), key=lambda item: (-item[1], item[0]))),
        "not_applied": dict(not_applied or {}),
        "corpus": {
            "articles": len(articles),
            "images": _sum(images, "pairs"),
            "panels": _sum(images.filter(pc.equal(images["cut_out"], "true")), "pairs"),
            "captions": lengths["caption_chars"].above(0),
            "mentions": _sum(images, "mentions"),
            "size_bytes": _sum(images, "size_bytes"),
        },
        "splits": _by_split(whole),
        "lengths": {
            **{name: lengths[name].summary() for name in LENGTHS[:5]},
            **{name: lengths[name].summary() for name in ("reference_tokens", "reference_chars")},
            **{
                name: ValueCounts.of(numbers(with_text, name)).summary()
                for name in ("full_text_tokens", "full_text_chars")
            },
            **{
                name: lengths[name].summary()
                for name in ("width_px", "height_px", "area_px", "short_side_px")
            },
        },
        "windows": {
            "caption": _windows(lengths["caption_tokens"]),
            "text": _windows(lengths["text_tokens"]),
        },
        "token_histograms": {
            "caption": _token_histogram(lengths["caption_tokens"]),
            "text": _token_histogram(lengths["text_tokens"]),
        },
        "image_sizes": _image_sizes(lengths["pixel_bins"], lengths["short_side_px"]),
        "figures_per_article": _figures_per_article(articles),
        "licenses": _licenses(whole.articles, ("license_group", "license")),
        "license_groups": _licenses(whole.articles, ("license_group",)),
        "years": _by_fact(articles, "year"),
        "languages": _by_fact(articles, "language"),
        "article_types": _by_fact(articles, "article_type"),
        "journals": _top(articles, "journal"),
        "kinds": _counts(images, "kind"),
        "image_formats": _counts(images, "image_format"),
        "mesh_terms": {"articles": len(known), "terms": len(mesh), **_top_values(mesh)},
        "labels": dict(labels or {}),
        "labels_by_license_group": dict(labels_by_license_group or {}),
    }


def labels(
    figures: Mapping[str, Mapping[str, int]],
    eligible: Mapping[str, Mapping[str, int]],
    pairs: Mapping[str, Mapping[tuple[str, str], int]],
) -> dict[str, dict[str, dict[str, int]]]:
    """Return the number of figures and pairs per label, by column, most frequent first.

    Args:
        figures: All harvested figures, by column and label.
        eligible: Figures that pass rules and deduplication, before balancing.
        pairs: Pairs of the corpus, by label and licence group.
    """
    by_label = {column: over_groups(found) for column, found in pairs.items()}
    return {
        column: {
            name: {
                "figures": count,
                "eligible": eligible[column].get(name, 0),
                "pairs": by_label[column].get(name, 0),
            }
            for name, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))
        }
        for column, found in figures.items()
    }


def labels_by_license_group(
    pairs: Mapping[str, Mapping[tuple[str, str], int]],
) -> dict[str, dict[str, dict[str, int]]]:
    """Return the number of pairs per label and licence group, by column (BIOMEDICA, table 16)."""
    result: dict[str, dict[str, dict[str, int]]] = {column: {} for column in pairs}
    for column, found in pairs.items():
        for (name, group), number in sorted(found.items()):
            result[column].setdefault(name, {})[group] = number
    return result


def pairs_by_split(stats: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of pairs in each split of a corpus, from its ``stats.json``."""
    return {split: stats["splits"].get(split, {"pairs": 0})["pairs"] for split in SPLITS}


def over_groups(found: Mapping[tuple[str, str], int]) -> Counter[str]:
    """Return the number of pairs per label, of all groups together."""
    total: Counter[str] = Counter()
    for (name, _), number in found.items():
        total[name] += number
    return total


def _one_row_an_article(articles: pa.Table) -> pa.Table:
    rows = grouped(articles, ("article_id",), ("pairs",), ARTICLE_FACTS)
    # Dates begin with the year at every precision.
    year = pc.utf8_slice_codeunits(rows["published"], 0, 4)
    return rows.append_column("year", year)


def _sum(table: pa.Table, name: str) -> int:
    return int(pc.sum(table[name]).as_py() or 0)


def _by_split(whole: PairTally) -> dict[str, dict[str, int]]:
    pairs = grouped(whole.pairs, ("split",), ("pairs", "size_bytes"))
    articles = grouped(whole.articles, ("split", "article_id"), ())
    counted = {split: len(articles.filter(pc.equal(articles["split"], split))) for split in SPLITS}
    found = {row["split"]: row for row in pairs.to_pylist()}
    return {
        split: {
            "pairs": found[split]["pairs"],
            "articles": counted[split],
            "size_bytes": found[split]["size_bytes"],
        }
        for split in SPLITS
        if split in found
    }


def _windows(tokens: ValueCounts) -> dict[str, dict[str, int | float]]:
    """Return the losses of each window: truncated texts, and tokens beyond its end."""
    texts, total = int(tokens.counts.sum()), tokens.total()
    lost = {}
    for window in WINDOWS:
        room = window - START_AND_END
        wasted = int((np.maximum(tokens.values - room, 0) * tokens.counts).sum())
        truncated = tokens.above(room)
        lost[str(window)] = {
            "texts_truncated": truncated,
            "share_of_texts_truncated": truncated / texts if texts else 0.0,
            "tokens_wasted": wasted,
            "share_of_tokens_wasted": wasted / total if total else 0.0,
        }
    return lost


def _token_histogram(tokens: ValueCounts) -> dict[str, Any]:
    """Return texts, tokens, and tokens truncated at each context length, by text length."""
    places = np.minimum(tokens.values // TOKEN_BIN, TOKEN_BINS - 1)

    def binned(weights: np.ndarray) -> list[int]:
        sums = np.zeros(TOKEN_BINS, np.int64)
        np.add.at(sums, places, weights * tokens.counts)
        return [int(value) for value in sums]

    return {
        "bin_tokens": TOKEN_BIN,
        "texts": binned(np.ones_like(tokens.values)),
        "tokens": binned(tokens.values),
        "wasted": {
            str(window): binned(np.maximum(tokens.values - (window - START_AND_END), 0))
            for window in WINDOWS
        },
    }


def _image_sizes(bins: ValueCounts, short_side: ValueCounts) -> dict[str, Any]:
    """Return images by size: ``[width bin, height bin, images]``, and counts under model inputs."""
    width, height = np.divmod(bins.values, PIXEL_BINS)
    images = int(short_side.counts.sum())
    return {
        "bins_per_octave": PIXEL_BINS_PER_OCTAVE,
        "bins": np.stack([width, height, bins.counts], axis=1).tolist(),
        "images_with_short_side_under_px": {
            str(side): images - short_side.above(side - 1) for side in SIDES_PX
        },
    }


def _figures_per_article(articles: pa.Table) -> dict[str, Any]:
    found = ValueCounts.of(numbers(articles, "pairs"))
    counts = zip(found.values.tolist(), found.counts.tolist(), strict=True)
    return {**found.summary(), "articles": {str(value): count for value, count in counts}}


def _licenses(articles: pa.Table, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return articles and images of each licence, most images first."""
    # First reduced to one row per article and licence: an article may have rows of two groups.
    each = grouped(articles, ("article_id", *keys), ("pairs",))
    rows = each.group_by(list(keys), use_threads=False)
    table = rows.aggregate([("article_id", "count"), ("pairs", "sum")])
    found = table.rename_columns([*keys, "articles", "images"]).to_pylist()
    return sorted(found, key=lambda row: (-row["images"], *(row[key] or "" for key in keys)))


def _by_fact(articles: pa.Table, name: str) -> list[dict[str, Any]]:
    """Return articles and images of each value, most articles first; years in order."""
    rows = articles.group_by([name], use_threads=False)
    table = rows.aggregate([("article_id", "count"), ("pairs", "sum")])
    found = table.rename_columns([name, "articles", "images"]).to_pylist()
    by_name = sorted(found, key=lambda row: (row[name] is None, row[name] or ""))
    return by_name if name == "year" else sorted(by_name, key=lambda row: -row["articles"])


def _top(articles: pa.Table, name: str) -> dict[str, Any]:
    rows = _by_fact(articles, name)
    named = [row for row in rows if row[name] is not None]
    unnamed = sum(row["articles"] for row in rows if row[name] is None)
    return {"distinct": len(named), "articles_without": unnamed, "top": named[:TOP]}


def _top_values(values: pa.Array) -> dict[str, Any]:
    found = [(row["values"], row["counts"]) for row in values.value_counts().to_pylist()]
    ordered = sorted(found, key=lambda item: (-item[1], item[0]))
    top = [{"term": term, "articles": count} for term, count in ordered[:TOP]]
    return {"distinct": len(found), "top": top}


def _counts(pairs: pa.Table, name: str) -> dict[str, int]:
    rows = grouped(pairs, (name,), ("pairs",)).to_pylist()
    ordered = sorted(rows, key=lambda row: (-row["pairs"], row[name] or ""))
    return {row[name] or "unknown": row["pairs"] for row in ordered}
