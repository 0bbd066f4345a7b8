"""Proxy analysis: whether the nearest public images have the findings of private images.

For each private image the nearest public images are retrieved. The findings that a labeller
extracts from the private report are compared with those it extracts from the public captions.

Uncertain and unmentioned findings count as negative. With several neighbours, a finding is
predicted if at least half have it. Ties between equally near public images are broken at random, so
a model with constant embeddings scores like a random draw; the frequencies of the findings among
the public images are in the notes.

Source:
    Zhang et al. 2023 (BiomedCLIP), arXiv:2303.00915, figure 5 and "Privacy-preserving proprietary
    data analysis": 980 radiographs, the nearest of 10,000 public ones, recall and F1 by label.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from biovl.benchmark import bootstrap, class_names
from biovl.benchmark import data as opening
from biovl.benchmark.chexpert_findings import FINDINGS, NO_FINDING, Labeller
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.metrics import TIE
from biovl.benchmark.stored_images import JoinedImages, parts_of
from biovl.benchmark.tasks import EmbeddedBenchmark, Score, TaskOutcome
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin

# Shapes: P private images, Q public ones, K neighbours, D embedding, L findings, R resamples.

OUR_LABELLER = "biovl.benchmark.chexpert_findings:label"
PRIVATE, PUBLIC = "private", "public"
_ROWS = 256
_COLUMNS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the proxy analysis: private images, public images, labeller."""

    private: str | Plugin
    """Images with reports: a folder, or a dataset plug-in with its settings."""
    public: str | Plugin
    """Image-text pairs to retrieve from, such as a corpus' train split (``{"name": "corpus",
    "path": "…", "split": "train"}``)."""
    neighbours: int = 1
    """Number of nearest public images per private image."""
    labeller: str = OUR_LABELLER
    """Function that extracts findings from a text, as ``module:function``; see
    ``chexpert_findings.Labeller``."""
    findings: tuple[str, ...] = FINDINGS
    """Names of the findings to compare."""
    seed: int = 0
    """Seed of the random choice between equally near images, and of the confidence intervals."""
    resamples: int = bootstrap.RESAMPLES
    """Bootstrap resamples of the confidence intervals."""

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise ValueError(f"neighbours must be at least 1, got {self.neighbours}")
        if not self.findings:
            raise ValueError("there is no finding to compare")


def build(config: Config) -> "Proxy":
    """Return the task for a configuration.

    Raises:
        ConfigError: If the labeller does not exist, or the default labeller has no such finding.
    """
    known = {class_names.normalize(name) for name in (*FINDINGS, NO_FINDING)}
    unknown = [name for name in config.findings if class_names.normalize(name) not in known]
    if unknown and config.labeller == OUR_LABELLER:
        raise ConfigError(
            f"findings: {unknown} are unknown to {config.labeller}; choose from "
            f"{', '.join((*FINDINGS, NO_FINDING))}"
        )
    return Proxy(config, _labeller(config.labeller))


def _labeller(name: str) -> Labeller:
    module, _, function = name.partition(":")
    try:
        labeller: Labeller = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"there is no labeller {name!r} (module:function): {error}") from error
    return labeller


class Proxy:
    """The benchmark task of proxy analysis."""

    needs_text = False

    def __init__(self, config: Config, labeller: Labeller) -> None:
        self.config = config
        self.labeller = labeller

    def data(self) -> Pairs:
        """Return the private pairs, then the public ones; column ``set`` distinguishes them."""
        private = opening.open_pairs(self.config.private)
        public = opening.open_pairs(self.config.public)
        return join_pairs(private, public)

    def evaluate(self, data: Pairs, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Return the scores of predicting private images' findings by their nearest public images.

        Raises:
            ArtifactError: If too few images are readable.
        """
        readable_N = np.isfinite(embedded.image_ND.sum(axis=1))
        is_private_N = np.array(data.about["set"].to_pylist()) == PRIVATE
        private_N = np.flatnonzero(is_private_N & readable_N)
        public_N = np.flatnonzero(~is_private_N & readable_N)
        if not len(private_N) or len(public_N) < self.config.neighbours:
            raise ArtifactError(
                f"{data.name} has {len(private_N)} private images and {len(public_N)} public ones "
                f"that are readable; {self.config.neighbours} neighbours are requested"
            )
        near_PK, similarity_PK = nearest(
            np.asarray(embedded.image_ND[private_N], np.float32),
            np.asarray(embedded.image_ND[public_N], np.float32),
            self.config.neighbours,
            seed=self.config.seed,
        )
        states = [self._positive(text) for text in data.texts]
        positive_ML = np.array(states, bool).reshape(len(states), -1)
        has_PL = positive_ML[data.text_of_image[private_N]]
        public_QL = positive_ML[data.text_of_image[public_N]]
        predicted_PL = public_QL[near_PK].mean(axis=1) >= 0.5
        scores = self._scores(has_PL, predicted_PL)
        unreadable = {
            name: int((part & ~readable_N).sum())
            for name, part in ((PRIVATE, is_private_N), (PUBLIC, ~is_private_N))
        }
        return TaskOutcome(
            scores=scores,
            predictions=self._predictions(
                data, private_N, public_N[near_PK], similarity_PK, has_PL, predicted_PL
            ),
            notes={
                "unreadable": unreadable,
                "left_out": dict(data.left_out),
                "public_images": len(public_N),
                "private_with": self._counted(has_PL),
                # Recall of a random neighbour.
                "public_share": {
                    name: float(share)
                    for name, share in zip(self.config.findings, public_QL.mean(0), strict=True)
                },
                "without_score": [
                    name for name, count in self._counted(has_PL).items() if not count
                ],
            },
        )

    def _positive(self, text: str) -> list[bool]:
        states = {class_names.normalize(k): state for k, state in self.labeller(text).items()}
        names = map(class_names.normalize, self.config.findings)
        return [states.get(name) == "positive" for name in names]

    def _counted(self, has_PL: np.ndarray) -> dict[str, int]:
        return {
            name: int(count)
            for name, count in zip(self.config.findings, has_PL.sum(0), strict=True)
        }

    def _scores(self, has_PL: np.ndarray, predicted_PL: np.ndarray) -> tuple[Score, ...]:
        """Return macro metrics, then those of each finding that occurs in a private report."""
        scores, columns_of = [], {"": np.flatnonzero(has_PL.any(0))}
        if not len(columns_of[""]):
            raise ArtifactError("no private report has a positive finding: nothing is compared")
        columns_of |= {f"/{self.config.findings[at]}": np.array([at]) for at in columns_of[""]}
        for part, columns in columns_of.items():
            both = np.concatenate([has_PL[:, columns], predicted_PL[:, columns]], axis=1)
            for name, measure in (("f1", f1), ("recall", recall), ("precision", precision)):
                estimate = bootstrap.estimate(
                    both.astype(np.int8),
                    measure,
                    resamples=self.config.resamples,
                    seed=self.config.seed,
                )
                scores.append(
                    Score(
                        name=name + part,
                        value=estimate.value,
                        low=estimate.low,
                        high=estimate.high,
                        count=len(both),
                        note=f"{int(has_PL[:, columns].sum())} positive",
                    )
                )
        return tuple(scores)

    def _predictions(
        self,
        data: Pairs,
        private_N: np.ndarray,
        near_PK: np.ndarray,
        similarity_PK: np.ndarray,
        has_PL: np.ndarray,
        predicted_PL: np.ndarray,
    ) -> pa.Table:
        """Return nearest neighbours and findings of each private image, and recall by finding."""

        def names(positive_PL: np.ndarray) -> pa.Array:
            rows = [[self.config.findings[at] for at in np.flatnonzero(row)] for row in positive_PL]
            return pa.array(rows, pa.list_(pa.string()))

        columns = {
            "id": pa.array([data.ids[row] for row in private_N], pa.string()),
            "neighbours": pa.array([[data.ids[at] for at in row] for row in near_PK]),
            "similarity": pa.array(similarity_PK.tolist(), pa.list_(pa.float32())),
            "findings": names(has_PL),
            "predicted": names(predicted_PL),
        }
        for at, name in enumerate(self.config.findings):
            if has_PL[:, at].any():
                right = pa.array(predicted_PL[:, at].astype(np.float64), mask=~has_PL[:, at])
                columns[f"recall/{name}"] = right
        return pa.table(columns)


def join_pairs(private: Pairs, public: Pairs) -> Pairs:
    """Return private and public pairs as one dataset, the private ones first."""
    both = (private, public)
    names = (PRIVATE, PUBLIC)
    left_out = {
        f"{name}: {reason}": count
        for name, part in zip(names, both, strict=True)
        for reason, count in part.left_out.items()
    }
    return Pairs(
        name=f"{private.name} by {public.name}",
        images=JoinedImages(tuple(images for part in both for images in parts_of(part.images))),
        texts=[*private.texts, *public.texts],
        text_of_image=np.concatenate(
            [private.text_of_image, len(private.texts) + public.text_of_image]
        ),
        about=pa.table({"set": pa.array(np.repeat(names, [len(part.ids) for part in both]))}),
        ids=[f"{name}/{row}" for name, part in zip(names, both, strict=True) for row in part.ids],
        left_out=left_out,
    )


def nearest(
    private_PD: np.ndarray, public_QD: np.ndarray, k: int, *, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and similarities of the k nearest public images, nearest first. Both [P, K].

    Args:
        private_PD: L2-normalised embeddings.
        public_QD: L2-normalised embeddings, at least k.
        k: Number of neighbours.
        seed: Seed of the random choice between equally near rows.
    """
    rng = np.random.default_rng(seed)
    rows, similarities = [], []
    for start in range(0, len(private_PD), _ROWS):
        some_pD = private_PD[start : start + _ROWS]
        near_pK = np.zeros((len(some_pD), 0), np.int64)
        key_pK = np.zeros((len(some_pD), 0))
        for first in range(0, len(public_QD), _COLUMNS):
            key_pq = some_pD @ public_QD[first : first + _COLUMNS].T
            # Similarities are rounded to steps of TIE; ties within a step are broken at random.
            # Otherwise rounding errors, equal in a whole column, would decide ties for all queries.
            key_pq = np.rint(key_pq.astype(np.float64) / TIE) + rng.random(key_pq.shape)
            at_pk = np.argpartition(-key_pq, min(k, key_pq.shape[1]) - 1, axis=1)[:, :k]
            key_pK = np.concatenate([key_pK, np.take_along_axis(key_pq, at_pk, 1)], axis=1)
            near_pK = np.concatenate([near_pK, first + at_pk], axis=1)
            best_pk = np.argsort(-key_pK, axis=1, kind="stable")[:, :k]
            key_pK = np.take_along_axis(key_pK, best_pk, 1)
            near_pK = np.take_along_axis(near_pK, best_pk, 1)
        rows.append(near_pK)
        similarities.append(np.einsum("pd,pkd->pk", some_pD, public_QD[near_pK]))
    return np.concatenate(rows), np.concatenate(similarities)


def f1(both_K: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return macro F1 per resample. Shape [R].

    Args:
        both_K: Findings of the private reports, then the predicted ones, as 0 or 1. Shape [K, 2L].
        weights_RK: Number of times that each row is in each resample.
    """
    hit_RL, has_RL, predicted_RL = _counts(both_K, weights_RK)
    return _macro(2 * hit_RL, has_RL + predicted_RL)


def recall(both_K: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return macro recall per resample; arguments as in ``f1``."""
    hit_RL, has_RL, _ = _counts(both_K, weights_RK)
    return _macro(hit_RL, has_RL)


def precision(both_K: np.ndarray, weights_RK: np.ndarray) -> np.ndarray:
    """Return macro precision per resample; a finding that occurs but is never predicted has 0."""
    hit_RL, has_RL, predicted_RL = _counts(both_K, weights_RK)
    return _macro(hit_RL, np.where(has_RL > 0, np.maximum(predicted_RL, 1), predicted_RL))


def _counts(
    both_K: np.ndarray, weights_RK: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    both = both_K.astype(np.float64)
    has_KL, predicted_KL = np.split(both, 2, axis=1)
    return weights_RK @ (has_KL * predicted_KL), weights_RK @ has_KL, weights_RK @ predicted_KL


def _macro(part_RL: Sequence[float] | np.ndarray, whole_RL: np.ndarray) -> np.ndarray:
    """Return the mean of the quotients with a positive denominator; NaN if there is none."""
    share_RL = np.divide(part_RL, whole_RL, out=np.zeros_like(whole_RL), where=whole_RL > 0)
    counted_R = (whole_RL > 0).sum(1)
    mean_R: np.ndarray = np.divide(
        share_RL.sum(1), counted_R, out=np.full(len(counted_R), np.nan), where=counted_R > 0
    )
    return mean_R
