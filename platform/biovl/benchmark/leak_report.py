"""Leakage report: near duplicates of benchmark images in a model's training corpus."""

import functools
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.benchmark import image_hashes, leakage
from biovl.benchmark.leakage import UNLEAKED, Leaks
from biovl.benchmark.tasks import EmbeddedBenchmark, Score
from biovl.index.search import Index

PART = "/without near duplicates"
"""Suffix of the names of metrics on images without near duplicates."""


def leaks_of(
    data: Any, embedded: EmbeddedBenchmark | None, index_uri: str, figures_uri: str, model: str
) -> Leaks:
    """Return which benchmark images have near duplicates in the corpus of an index.

    Only duplicates in the split train count as leaks; those in other splits are listed as well.

    Identical files are always detected; similar perceptual hashes if ``figures/`` is given, which
    contains them; similar embeddings if the index was made with the same model.

    Args:
        data: The dataset.
        embedded: Embeddings of its images; None if the task has none: only files and perceptual
            hashes are compared.
        index_uri: Index of the training corpus.
        figures_uri: Figures that the corpus was made from; may be empty.
        model: Fingerprint of the model.

    Raises:
        ArtifactError: If the index or the figures do not exist.
    """
    index, ids = Index.open(index_uri), image_ids(data)
    hashes = image_hashes.Hashes(image_hashes.looks_of(ids, data.images))
    near = list(hashes.near(image_hashes.looks_of_index(index)))
    if figures_uri:
        for part in image_hashes.looks_of_figures(figures_uri):
            near += hashes.near(part)
    if embedded is not None and index.model_fingerprint == model:
        near += leakage.near_in_index(embedded.image_ND, index)
    return leakage.leaks(ids, near, functools.partial(trained_on, index))


def trained_on(index: Index, corpus_ids: Collection[str]) -> set[str]:
    """Return the given ids in an index's train split: images, or figures with a panel there."""
    split, known = index.column("split"), pa.array(corpus_ids, pa.string())
    panel_or_figure = index.column("figure_id").filter(pc.equal(split, "train"))
    figure = pc.replace_substring_regex(panel_or_figure, r"_p[^_]*$", "")
    return {
        name
        for ids in (panel_or_figure, figure)
        for name in ids.filter(pc.is_in(ids, known)).to_pylist()
    }


def image_ids(data: Any) -> list[str]:
    """Return an id for each image of a dataset.

    It is the row's id if each image has one row; else the image's name, or its number if images
    have no names.
    """
    image_of, number = getattr(data, "image_of", None), len(data.images)
    ids: list[str] = data.ids
    if image_of is not None and not np.array_equal(image_of, np.arange(number)):
        # Several questions may be about one image.
        ids = getattr(data, "image_names", [])
    return ids if len(ids) == number else [str(row) for row in range(number)]


def leaked_ids(data: Any, predictions: pa.Table, leaks: Leaks) -> set[str]:
    """Return the ids of predictions about images with near duplicates.

    These are the images, the questions about them, or the queries of whose pairs they are part.
    """
    leaked, image_of = leaks.leaked(), getattr(data, "image_of", None)
    if "images" in predictions.column_names:
        queries = predictions.select(["id", "images"]).to_pylist()
        return {query["id"] for query in queries if not leaked.isdisjoint(query["images"])}
    if image_of is None:
        return leaked
    is_leaked_N = np.isin(image_ids(data), list(leaked))
    return {data.ids[number] for number in np.flatnonzero(is_leaked_N[image_of])}


def scores_without(
    data: Any, predictions: pa.Table, leaks: Leaks, *, resamples: int, seed: int
) -> list[Score]:
    """Return the metrics without leaked images, questions or queries, with the suffix ``PART``.

    They are the metrics that are means of a column of the predictions. Empty if no prediction is of
    a leaked one. Queries of retrieval search the whole pool, as those of other parts of it do.
    """
    leaked = pc.is_in(
        predictions["id"], pa.array(leaked_ids(data, predictions, leaks), pa.string())
    )
    unleaked, scores = predictions.filter(pc.invert(leaked)), list[Score]()
    for name in predictions.column_names if len(unleaked) < len(predictions) else ():
        if pa.types.is_floating(unleaked.schema.field(name).type) and "/" not in name:
            values = unleaked[name].drop_null().to_numpy()
            if len(values):
                scores.append(
                    Score.estimated(
                        *(name + PART, values), resamples=resamples, seed=seed, note=UNLEAKED
                    )
                )
    return scores
