"""Proxy analysis: whether the nearest public images have the findings of private images.

A pool of public images of the modality is selected first: those nearest to a few examples, and of
these the ones that agree most with their captions. For each private image the nearest images of
the pool are retrieved. The findings that a labeller extracts from the private report are compared
with those it extracts from the public captions.

Uncertain and unmentioned findings count as negative. With several neighbours, a finding is
predicted if at least half have it. Ties between equally near public images are broken at random, so
a model with constant embeddings scores like a random draw, which ``chance_…`` scores state.

Private images have row numbers for names: neither file names nor reports are published.

Source:
    Zhang et al. 2023 (BiomedCLIP), arXiv:2303.00915, figure 5 and "Privacy-preserving proprietary
    data analysis": 980 radiographs, the nearest of 10,000 public ones, recall and F1 by label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from biovl.benchmark import agreement, bootstrap, encoders, labellers, proxy_pool, selection
from biovl.benchmark import data as opening
from biovl.benchmark.agreement_plot import agreement_plot
from biovl.benchmark.chexpert_findings import FINDINGS
from biovl.benchmark.datasets import Images, Pairs
from biovl.benchmark.datasets.folder import ENDINGS
from biovl.benchmark.embedding import Texts
from biovl.benchmark.encoders import ModelDescription
from biovl.benchmark.labellers.function import OURS
from biovl.benchmark.metrics import TIE
from biovl.benchmark.report_sections import sections
from biovl.benchmark.stored_images import (
    Chosen,
    ImageFiles,
    JoinedImages,
    hash_of,
    parts_of,
    version_of,
)
from biovl.benchmark.tasks import EmbeddedBenchmark, Score, SelectionRun, TaskOutcome
from biovl.core.artifacts import Folder
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.filesystems import Tree
from biovl.core.plugins import Plugin
from biovl.index.opened import Index

# Shapes: P private images, Q public ones, N both, C candidates, S seeds, K neighbours, D embedding,
# L findings.

PRIVATE, PUBLIC = "private", "public"
_SHOWN = 3
"""Neighbours listed in the predictions at least, as in the paper's figure 5C."""
_ROWS = 256
_COLUMNS = 1 << 16


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
    seed_images: int = 1_000
    """Number of seeds to draw at random; 0: all."""
    candidates: int = 100_000
    """Number of public images nearest to the seeds."""
    pool: int = 10_000
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
    neighbours: int = 1
    """Number of nearest public images per private image."""
    labeller: str | Plugin = OURS
    """Labeller that extracts findings from a text: a plug-in of ``labellers`` with its settings, or
    a function as ``module:function``."""
    findings: tuple[str, ...] = FINDINGS
    """Names of the findings to compare."""
    seed: int = 0
    """Seed of the random choice of seeds and between equally near images, and of the confidence
    intervals."""
    resamples: int = bootstrap.RESAMPLES
    """Bootstrap resamples of the confidence intervals."""

    def __post_init__(self) -> None:
        if min(self.neighbours, self.candidates, self.pool) < 1 or self.seed_images < 0:
            raise ValueError(
                "neighbours, candidates and pool are at least 1, seed_images is not negative"
            )
        if not self.findings:
            raise ValueError("there is no finding to compare")
        if self.seeds and self.queries:
            raise ValueError("set either seeds or queries, not both")


def build(config: Config) -> "Proxy":
    """Return the task for a configuration."""
    return Proxy(config)


@dataclass(frozen=True, kw_only=True)
class ProxySources(Pairs):
    """All private and public pairs, before the selection. Private images are first."""

    private: Pairs
    public: Pairs
    seeds: Images | None = None
    """Example images of the modality."""
    labeller_files: tuple[tuple[str, int, int], ...] = ()
    """Versions of the local files of the labeller: with others, a run is another one."""


@dataclass(frozen=True, kw_only=True)
class LabelledPairs(Pairs):
    """Private pairs and those of the pool, the private ones first, with their findings."""

    is_private_N: np.ndarray
    """Whether an image is private. bool."""
    positive_NL: np.ndarray
    """Findings of each image's text. bool."""
    group_P: np.ndarray
    """Number of each private image's patient, or of the image itself. int64."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Counts of the selection and of the labels, for the report."""


class Proxy:
    """The benchmark task of proxy analysis."""

    needs_text = False

    def __init__(self, config: Config) -> None:
        self.config = config

    def data(self) -> ProxySources:
        """Return all pairs, and the seeds.

        Raises:
            ConfigError: If the labeller does not exist, or does not know one of the findings.
        """
        labellers.check_findings(self.config.findings, labellers.make(self.config.labeller))
        public = self.config.public
        if isinstance(public, str) and opening.dataset_plugin(public).name == "corpus":
            public = Plugin("corpus", {"path": public, "split": "train", "text": "caption"})
        seeds = None
        if self.config.seeds:
            seeds = seed_images(self.config.seeds, self.config.seed_images, self.config.seed)
        private = opening.open_pairs(self.config.private)
        found = sources(private, opening.open_pairs(public), seeds)
        return replace(found, labeller_files=_versions(self.config.labeller))

    def select(self, data: ProxySources, run: SelectionRun) -> LabelledPairs:
        """Return the private pairs and the selected public ones, with their findings.

        Raises:
            ArtifactError: If no seed is readable, or the private data has no column ``patient``.
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
            _Indexed(self.config.index, model, public)
            if self.config.index
            else run.embed(model, public.images)
        )
        found = proxy_pool.near(
            seed_SD[readable_S], public_QD, self.config.candidates, seed=self.config.seed
        )
        if not len(found.row_C):
            raise ArtifactError(f"none of the {len(public.ids)} public images is readable")
        nearest = proxy_pool.Candidates(
            row_C=found.row_C,
            seed_C=readable_S[found.seed_C],
            similarity_C=found.similarity_C,
            readable=found.readable,
        )
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
        return _subset(public, kept), facts

    def _labelled(
        self, private: Pairs, pool: Pairs, facts: Mapping[str, Any], run: SelectionRun
    ) -> LabelledPairs:
        cut = [sections(text, self.config.sections) for text in private.texts]
        reports = [part or text for part, text in zip(cut, private.texts, strict=True)]
        found = run.label(self.config.labeller, [*reports, *pool.texts])
        positive_ML = np.array(
            [labellers.positive(states, self.config.findings) for states in found.states], bool
        )
        joined = sources(private, pool)
        positive_NL = positive_ML[joined.text_of_image]
        # Of several texts of an image, each may mention a finding.
        np.logical_or.at(positive_NL, joined.further_F2[:, 0], positive_ML[joined.further_F2[:, 1]])
        group_P, without_patient = _groups(private, self.config.patient)
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
        near_PK, similarity_PK = nearest(
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
            note = f"{int(has_PL[:, columns].sum())} positive"
            for name, measure in agreement.METRICS.items():
                known = bootstrap.estimate(
                    own_G3, measure, resamples=self.config.resamples, seed=self.config.seed
                )
                ends = (known.value, known.low, known.high)
                scores.append(_score(name + part, ends, len(has_PL), note))
            for name, level_L in chance.items():
                level = float(level_L[columns].mean())
                scores.append(_score(f"chance_{name}{part}", (level,) * 3, len(has_PL), note))
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


def _score(name: str, ends: tuple[float, ...], count: int, note: str) -> Score:
    value, low, high = ends
    return Score(name=name, value=value, low=low, high=high, count=count, note=note)


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


class _Indexed:
    """Embeddings of public images in an index, of which only the rows asked for are in memory."""

    def __init__(self, uri: str, model: ModelDescription, public: Pairs) -> None:
        index = Index.open(uri)
        if index.model_fingerprint != model.fingerprint:
            raise ConfigError(f"index: {uri} was not made with the selector, {model.uri}")
        row_of = {name: row for row, name in enumerate(index.column("figure_id").to_pylist())}
        self._row_Q = np.array([row_of.get(name, -1) for name in public.ids], np.int64)
        self._vectors = index.vectors("images")

    def __len__(self) -> int:
        return len(self._row_Q)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return embeddings of some public images; NaN for those that the index lacks."""
        row_C = self._row_Q[rows]
        found_CD: np.ndarray = self._vectors[row_C]
        found_CD[row_C < 0] = np.nan
        return found_CD


def _groups(private: Pairs, column: str) -> tuple[np.ndarray, int]:
    """Return the number of each image's patient, and how many images have no patient.

    Without a patient, or a column of them, each image is a group of its own.
    """
    if not column:
        return np.arange(len(private.ids)), 0
    if column not in private.about.column_names:
        raise ArtifactError(
            f"{private.name} has no column {column} of patients, only "
            f"{', '.join(private.about.column_names)}"
        )
    values: list[str | int] = [
        row if _is_blank(value) else str(value).strip()
        for row, value in enumerate(private.about[column].to_pylist())
    ]
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    group_P = np.array([numbers[value] for value in values], np.int64)
    return group_P, sum(isinstance(value, int) for value in values)


def _is_blank(patient: Any) -> bool:
    return patient is None or patient != patient or not str(patient).strip()


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


def seed_images(seeds: str | Plugin, count: int, seed: int) -> Images:
    """Return example images: a random draw of a folder of images, or of a dataset.

    Raises:
        ArtifactError: If there are none.
    """
    plugin = opening.dataset_plugin(seeds)
    images: Images
    if isinstance(seeds, str) and plugin.name == "folder":
        tree, folder = Tree(seeds), Folder(seeds)
        files = sorted(tree.below(tree.path).files)
        names = tuple(name for name in files if name.lower().endswith(ENDINGS))
        images = ImageFiles(seeds, names, hash_of([version_of(folder, name) for name in names]))
    else:
        images = opening.open_dataset(plugin).images
    if not len(images):
        raise ArtifactError(f"seeds: {plugin} holds no images")
    if count and count < len(images):
        drawn = np.random.default_rng(seed).choice(len(images), count, replace=False)
        images = Chosen(images, np.sort(drawn))
    return images


def _versions(labeller: str | Plugin) -> tuple[tuple[str, int, int], ...]:
    """Return the versions of a labeller's local files; none of a function or a name on the hub."""
    path = Path(str(labeller.settings.get("path", ""))) if isinstance(labeller, Plugin) else Path()
    if path.is_file():
        return (version_of(Folder(str(path.parent)), path.name),)
    names = sorted(one.name for one in path.iterdir() if one.is_file()) if path.is_dir() else []
    return tuple(version_of(Folder(str(path)), name) for name in names) if path.name else ()


def _subset(pairs: Pairs, rows: np.ndarray) -> Pairs:
    texts_of = {row: [pairs.texts[pairs.text_of_image[row]]] for row in rows.tolist()}
    for row, text in pairs.further_F2.tolist():
        if row in texts_of:
            texts_of[row].append(pairs.texts[text])
    return selection.pairs(
        name=pairs.name,
        images=Chosen(pairs.images, rows),
        texts=list(texts_of.values()),
        ids=[pairs.ids[row] for row in rows],
        left_out=pairs.left_out,
    )


def sources(private: Pairs, public: Pairs, seeds: Images | None = None) -> ProxySources:
    """Return private and public pairs as one dataset, the private ones first.

    The id of a private image is its row number: ``private/17``.
    """
    both = (private, public)
    left_out = {
        f"{name}: {reason}": count
        for name, part in zip((PRIVATE, PUBLIC), both, strict=True)
        for reason, count in part.left_out.items()
    }
    images = [one for part in both for one in parts_of(part.images)]
    return ProxySources(
        name=f"{private.name} by {public.name}",
        images=JoinedImages((*images, *(parts_of(seeds) if seeds is not None else ()))),
        texts=[*private.texts, *public.texts],
        text_of_image=np.concatenate(
            [private.text_of_image, len(private.texts) + public.text_of_image]
        ),
        further_F2=np.concatenate(
            [
                private.further_F2,
                public.further_F2 + np.array([len(private.ids), len(private.texts)]),
            ]
        ),
        about=pa.table({"set": pa.array(np.repeat((PRIVATE, PUBLIC), [len(p.ids) for p in both]))}),
        ids=[f"{PRIVATE}/{row}" for row in range(len(private.ids))]
        + [f"{PUBLIC}/{name}" for name in public.ids],
        left_out=left_out,
        private=private,
        public=public,
        seeds=seeds,
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
