"""Near duplicates between a benchmark's images and what a model was trained on, in a run."""

from typing import Any

import pyarrow as pa

from biovl.benchmark import image_hashes, leakage
from biovl.benchmark.leakage import Leaks
from biovl.benchmark.tasks import EmbeddedBenchmark, Score
from biovl.index.opened import Index

PART = "/without near duplicates"
"""What stands after the name of a score of the images that did not leak."""


def leaks_of(
    data: Any, embedded: EmbeddedBenchmark, index_uri: str, figures_uri: str, model: str
) -> Leaks:
    """Return which images of a benchmark are near duplicates of the corpus of an index.

    By file; by perceptual hash where ``figures/`` is given, in which hashes stand; and by vector
    where the index is of this very model.

    Args:
        data: The benchmark's.
        embedded: Vectors of its images.
        index_uri: Of the training corpus.
        figures_uri: What the corpus was made from; may be empty.
        model: The fingerprint of the model.

    Raises:
        ArtifactError: If there is no index or no figures.
    """
    index, ids = Index.open(index_uri), image_ids(data)
    hashes = image_hashes.Hashes(image_hashes.looks_of(ids, data.images))
    found = list(hashes.near(image_hashes.looks_of_index(index)))
    if figures_uri:
        for part in image_hashes.looks_of_figures(figures_uri):
            found += hashes.near(part)
    if index.model_fingerprint == model:
        found += leakage.near_in_index(embedded.image_ND, index)
    return leakage.leaks(ids, found)


def image_ids(data: Any) -> list[str]:
    """Return a name for each image: the benchmark's, or the number of the image."""
    ids: list[str] = data.ids
    rows = range(len(data.images))
    return ids if len(ids) == len(data.images) else [str(row) for row in rows]


def scores_without(
    predictions: pa.Table, leaks: Leaks, *, resamples: int, seed: int
) -> list[Score]:
    """Return scores of the images that did not leak, where predictions are by image."""
    leaked = leaks.leaked()
    if not leaked & set(predictions["id"].to_pylist()):
        return []
    kept = leakage.scores_without(predictions, leaked, resamples=resamples, seed=seed)
    return [
        Score(
            name=score.name + PART,
            value=score.value,
            low=score.low,
            high=score.high,
            count=score.count,
            note=score.note,
        )
        for score in kept
    ]
