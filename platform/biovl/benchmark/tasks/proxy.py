"""Proxy analysis: whether the nearest public images have the findings of private images.

A pool of public images of the modality is selected first: those nearest to a few examples, and of
these the ones that agree most with their captions. For each private image the nearest images of
the pool are retrieved. The findings that a labeller extracts from the private report are compared
with those it extracts from the public captions.

Uncertain and unmentioned findings count as negative. With several neighbours, a finding is
predicted if at least half have it. Ties between equally near public images are broken at random, so
a model with constant embeddings scores like a random draw, that is, like the ``chance_…`` scores.

Private images have row numbers for names: neither file names nor reports are published.

Source:
    Zhang et al. 2023 (BiomedCLIP), arXiv:2303.00915, figure 5 and "Privacy-preserving proprietary
    data analysis": 980 radiographs, the nearest of 10,000 public ones, recall and F1 by label.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, NonNegativeInt, PositiveInt

from biovl.benchmark import agreement, bootstrap, encoders, labellers, proxy_data, proxy_pool
from biovl.benchmark import data as opening
from biovl.benchmark.agreement_plot import agreement_plot
from biovl.benchmark.bootstrap import IntervalEstimate
from biovl.benchmark.chexpert_findings import FINDINGS
from biovl.benchmark.datasets import Images, Pairs
from biovl.benchmark.embedding import Texts
from biovl.benchmark.encoders import ModelDescription
from biovl.benchmark.labellers.function import OURS
from biovl.benchmark.proxy_data import PRIVATE, PUBLIC, LabelledPairs, ProxySources
from biovl.benchmark.report_sections import sections
from biovl.benchmark.tasks import EmbeddedBenchmark, Score, SelectionRun, TaskOutcome
from biovl.core.artifacts import fingerprint
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin

# Shapes: P private images, Q public ones, N both, C candidates, S seeds, K neighbours, D embedding,
# L findings.

_SHOWN = 3
"""Neighbours listed in the predictions at least, as in the paper's figure 5C."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the proxy analysis: private images, public images, their selection, labeller."""

    private: str | Plugin
    """Images with reports: a folder, or a dataset plug-in with its settings."""
    public: str | Plugin
    """Image-text pairs to retrieve from; of a corpus published by assemble, the captions of its
    train split."""
    seeds: str | Plugin = ""
    """Example images of the modality, by which a pool of public images is selected: a folder of
    images, or a dataset plug-in with its settings. Empty, and without ``queries``: all public
    images."""
    queries: tuple[str, ...] = ()
    """Instead of ``seeds``: words for the modality, such as ``chest radiograph``."""
    seed_images: NonNegativeInt = 1_000
    """Number of seeds to draw at random; 0: all."""
    candidates: PositiveInt = 100_000
    """Number of public images nearest to the seeds."""
    pool: PositiveInt = 10_000
    """Number of candidates to keep: those that agree most with their captions."""
    selector: str = ""
    """Model that selects the pool for all models: its name in the run, or a model as in ``model``.
    Empty: the first model of the run that embeds texts."""
    index: str = ""
    """Index of the public corpus made with the selector: its image embeddings are used, and the
    corpus is not embedded."""
    sections: tuple[str, ...] = ("findings", "impression")
    """Sections of the private reports to label; reports without any of them are labelled whole.
    Empty: all whole."""
    patient: str = ""
    """Column of the private data whose images are resampled together; ``patient`` in the layout of
    MIMIC-CXR. Empty: images are resampled one by one, as are those without a value."""
    neighbours: PositiveInt = 1
    """Number of nearest public images per private image."""
    labeller: str | Plugin = OURS
    """Labeller that extracts findings from a text: a plug-in of ``labellers`` with its settings, or
    a function as ``module:function``."""
    findings: Annotated[tuple[str, ...], Field(min_length=1)] = FINDINGS
    """Names of the findings to compare."""
    seed: int = 0
    """Seed of the random choice of seeds and between equally near images, and of the confidence
    intervals."""
    resamples: int = bootstrap.RESAMPLES
    """Bootstrap resamples of the confidence intervals."""

    def __post_init__(self) -> None:
        if self.seeds and self.queries:
            raise ValueError("set either seeds or queries, not both")


def build(config: Config) -> "Proxy":
    """Return the task for a configuration."""
    return Proxy(config)


class Proxy:
    """Benchmark task of the proxy analysis: findings of private images by public neighbours."""

    needs_text = False

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> ProxySources:
        """Return all private and public pairs, and the seed images.

        Raises:
            ConfigError: If the labeller does not exist, or does not know one of the findings.
        """
        labellers.check_findings(self.config.findings, labellers.make(self.config.labeller))
        public = self.config.public
        if isinstance(public, str) and opening.dataset_plugin(public).name == "corpus":
            public = Plugin("corpus", {"path": public, "split": "train", "text": "caption"})
        seeds = None
        if self.config.seeds:
            seeds = proxy_data.seed_images(
                self.config.seeds, self.config.seed_images, self.config.seed
            )
        private = opening.open_pairs(self.config.private)
        found = proxy_data.sources(private, opening.open_pairs(public), seeds)
        return replace(
            found,
            labeller_files=proxy_data.versions(self.config.labeller),
            selected_with=self._selected_with(),
        )

    def _selected_with(self) -> tuple[str, ...]:
        """Return the fingerprints of the selector and the index."""
        known = [fingerprint(self.config.index)] if self.config.index else []
        if self.config.selector:
            # A name in the run is not described: that model is an input itself.
            with contextlib.suppress(ArtifactError, ConfigError):
                known.append(encoders.describe(self.config.selector).fingerprint)
        return tuple(known)

    def select(self, data: ProxySources, run: SelectionRun) -> LabelledPairs:
        """Return the private pairs and the selected public ones, with their findings.

        Raises:
            ArtifactError: If no seed is readable, or the private data lacks the patient column.
            ConfigError: If no model can select, or the index was made with another one.
        """
        pool, facts = data.public, dict[str, Any]()
        if data.seeds is not None or self.config.queries:
            pool, facts = self._pool(data.public, data.seeds, run)
        return self._labelled(data.private, pool, facts, run)

    def _pool(
        self, public: Pairs, seeds: Images | None, run: SelectionRun
    ) -> tuple[Pairs, dict[str, Any]]:
        model = _selector(self.config.selector, run.models)
        seed_SD = np.asarray(
            run.embed(model, seeds if seeds is not None else Texts(self.config.queries))
        )
        readable_S = np.flatnonzero(np.isfinite(seed_SD.sum(1)))
        if not len(readable_S):
            raise ArtifactError(f"none of the {len(seed_SD)} seeds is readable")
        public_QD: proxy_pool.Rows = (
            proxy_pool.Indexed(self.config.index, model, public)
            if self.config.index
            else run.embed(model, public.images)
        )
        found = proxy_pool.near(
            seed_SD[readable_S], public_QD, self.config.candidates, seed=self.config.seed
        )
        if not len(found.row_C):
            raise ArtifactError(f"none of the {len(public.ids)} public images is readable")
        nearest = replace(found, seed_C=readable_S[found.seed_C])
        own_C = public.text_of_image[found.row_C]
        distinct_M, text_C = np.unique(own_C, return_inverse=True)
        text_MD = run.embed(model, Texts(tuple(public.texts[row] for row in distinct_M)))
        image_CD = np.asarray(public_QD[found.row_C], np.float32)
        consistency_C = np.einsum("cd,cd->c", image_CD, np.asarray(text_MD)[text_C])
        is_kept_C = np.zeros(len(found.row_C), bool)
        is_kept_C[proxy_pool.largest(consistency_C, self.config.pool, seed=self.config.seed)] = True
        ids = [public.ids[row] for row in found.row_C]
        run.publish(proxy_pool.table(nearest, ids, consistency_C, is_kept_C))
        kept = np.sort(found.row_C[is_kept_C])
        facts = {
            "selector": model.fingerprint,
            "seeds": len(readable_S),
            "unreadable_seeds": len(seed_SD) - len(readable_S),
            "public": len(public.ids),
            "candidates": len(found.row_C),
            "pool": len(kept),
            proxy_pool.UNREADABLE: len(public.ids) - found.readable,
            proxy_pool.FAR: found.readable - len(found.row_C),
            proxy_pool.INCONSISTENT: len(found.row_C) - len(kept),
        }
        return proxy_data.subset(public, kept), facts

    def _labelled(
        self, private: Pairs, pool: Pairs, facts: Mapping[str, Any], run: SelectionRun
    ) -> LabelledPairs:
        cut = [sections(text, self.config.sections) for text in private.texts]
        reports = [part or text for part, text in zip(cut, private.texts, strict=True)]
        found = run.label(self.config.labeller, [*reports, *pool.texts])
        positive_ML = np.array(
            [labellers.positive(states, self.config.findings) for states in found.states], bool
        )
        joined = proxy_data.sources(private, pool)
        positive_NL = positive_ML[joined.text_of_image]
        # Of several texts of an image, each may mention a finding.
        np.logical_or.at(positive_NL, joined.further_F2[:, 0], positive_ML[joined.further_F2[:, 1]])
        group_P, without_patient = proxy_data.groups(private, self.config.patient)
        counts = {
            "whole_reports": sum(part is None for part in cut) if self.config.sections else 0,
            "truncated_texts": found.truncated,
        }
        return LabelledPairs(
            **{name: getattr(joined, name) for name in Pairs.__dataclass_fields__},
            is_private_N=np.arange(len(joined.ids)) < len(private.ids),
            positive_NL=positive_NL,
            group_P=group_P,
            facts={
                "selection": dict(facts),
                "texts": counts,
                "images_without_patient": without_patient,
            },
        )

    def evaluate(self, data: LabelledPairs, embedded: EmbeddedBenchmark) -> TaskOutcome:
        """Return the scores of predicting private images' findings by their nearest public images.

        Raises:
            ArtifactError: If too few images are readable, or no finding is positive.
        """
        readable_N = np.isfinite(embedded.image_ND.sum(axis=1))
        private_P = np.flatnonzero(data.is_private_N & readable_N)
        public_Q = np.flatnonzero(~data.is_private_N & readable_N)
        if not len(private_P) or len(public_Q) < self.config.neighbours:
            raise ArtifactError(
                f"{data.name} has {len(private_P)} private images and {len(public_Q)} public ones "
                f"that are readable; {self.config.neighbours} neighbours are requested"
            )
        near_PK, similarity_PK = proxy_pool.nearest(
            np.asarray(embedded.image_ND[private_P], np.float32),
            np.asarray(embedded.image_ND[public_Q], np.float32),
            min(max(self.config.neighbours, _SHOWN), len(public_Q)),
            seed=self.config.seed,
        )
        has_PL, public_QL = data.positive_NL[private_P], data.positive_NL[public_Q]
        if not has_PL.any():
            raise ArtifactError("no private report has a positive finding: nothing is compared")
        predicted_PL = public_QL[near_PK[:, : self.config.neighbours]].mean(axis=1) >= 0.5
        chance = agreement.by_chance(has_PL, public_QL, self.config.neighbours)
        _, group_P = np.unique(data.group_P[private_P], return_inverse=True)
        counts_G3L = agreement.counts(has_PL, predicted_PL, group_P)
        scores = self._scores(counts_G3L, has_PL, chance)
        defined_L = has_PL.any(0)
        unreadable = {
            PRIVATE: int((data.is_private_N & ~readable_N).sum()),
            PUBLIC: int((~data.is_private_N & ~readable_N).sum()),
        }
        undefined = [name for name, count in self._by_finding(has_PL.sum(0)).items() if not count]
        return TaskOutcome(
            scores=scores,
            predictions=self._predictions(
                data, private_P, public_Q[near_PK], similarity_PK, has_PL, predicted_PL
            ),
            plots={"findings": agreement_plot(scores, f"{data.name}, {embedded.model}")},
            notes={
                **data.facts,
                "unreadable": unreadable,
                "left_out": _left_out(data, undefined),
                "public_images": len(public_Q),
                "patients": len(counts_G3L) if self.config.patient else None,
                "private_with": self._by_finding(has_PL.sum(0)),
                "public_share": self._by_finding(public_QL.mean(0)),
                "chance": {name: float(level[defined_L].mean()) for name, level in chance.items()},
                "without_score": undefined,
                "warnings": _warnings(
                    data.facts, len(counts_G3L), by_patient=bool(self.config.patient)
                ),
            },
        )

    def _by_finding(self, values_L: np.ndarray) -> dict[str, Any]:
        return dict(zip(self.config.findings, values_L.tolist(), strict=True))

    def _scores(
        self, counts_G3L: np.ndarray, has_PL: np.ndarray, chance: Mapping[str, np.ndarray]
    ) -> tuple[Score, ...]:
        """Return macro metrics, then those of each finding that occurs in a private report."""
        findings, scores = len(self.config.findings), list[Score]()
        columns_of = {"": np.flatnonzero(has_PL.any(0))}
        columns_of |= {f"/{self.config.findings[at]}": np.array([at]) for at in columns_of[""]}
        for part, columns in columns_of.items():
            own_G3 = counts_G3L[:, np.concatenate([columns + n * findings for n in range(3)])]
            found = {
                name + part: bootstrap.estimate(
                    own_G3, measure, resamples=self.config.resamples, seed=self.config.seed
                )
                for name, measure in agreement.METRICS.items()
            }
            for name, level_L in chance.items():
                level = float(level_L[columns].mean())
                found[f"chance_{name}{part}"] = IntervalEstimate(value=level, low=level, high=level)
            note = f"{int(has_PL[:, columns].sum())} positive"
            scores += [
                Score(name=name, **vars(known), count=len(has_PL), note=note)
                for name, known in found.items()
            ]
        return tuple(scores)

    def _predictions(
        self,
        data: LabelledPairs,
        private_P: np.ndarray,
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
            "id": pa.array([data.ids[row] for row in private_P], pa.string()),
            "neighbours": pa.array([[data.ids[at] for at in row] for row in near_PK]),
            "similarity": pa.array(similarity_PK.tolist(), pa.list_(pa.float32())),
            "findings": names(has_PL),
            "predicted": names(predicted_PL),
        }
        if self.config.patient:
            columns["patient"] = pa.array(data.group_P[private_P])
        for at, name in enumerate(self.config.findings):
            if has_PL[:, at].any():
                right = pa.array(predicted_PL[:, at].astype(np.float64), mask=~has_PL[:, at])
                columns[f"recall/{name}"] = right
        return pa.table(columns)


def _selector(name: str, models: Mapping[str, ModelDescription]) -> ModelDescription:
    if name and name not in models:
        model = encoders.describe(name)
    else:
        with_text = [one for own, one in models.items() if one.has_text and name in ("", own)]
        if not with_text:
            raise ConfigError(
                "the pool is selected by image-caption similarity: set selector to a model that "
                "embeds texts"
            )
        model = with_text[0]
    if not model.has_text:
        raise ConfigError(f"selector: {name} embeds no texts, which the selection compares")
    return model


def _left_out(data: LabelledPairs, undefined: Sequence[str]) -> dict[str, int]:
    selected = data.facts.get("selection", {})
    reasons = (proxy_pool.UNREADABLE, proxy_pool.FAR, proxy_pool.INCONSISTENT)
    counts = {
        **data.left_out,
        **{f"{PUBLIC}: {reason}": selected.get(reason, 0) for reason in reasons},
        "findings that no private report has (undefined)": len(undefined),
    }
    return {reason: count for reason, count in counts.items() if count}


def _warnings(facts: Mapping[str, Any], groups: int, *, by_patient: bool) -> list[str]:
    found, selected = [], facts.get("selection", {})
    if by_patient and groups == 1:
        found.append("one patient: the intervals show no uncertainty")
    if without := facts.get("images_without_patient", 0):
        found.append(f"{without:,} images without a patient are resampled one by one")
    if selected and not selected[proxy_pool.FAR]:
        found.append(f"all {selected['candidates']:,} readable public images are candidates")
    if selected and not selected[proxy_pool.INCONSISTENT]:
        found.append(f"all {selected['pool']:,} candidates are kept, consistent or not")
    return found
