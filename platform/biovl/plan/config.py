"""Settings of plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from biovl.core.config import Recipe
from biovl.plan.tables import Assumption, Instance, assumptions, prices

Buying = Literal["on_demand", "spot", "block"]
"""Pricing model: on demand, spot, or EC2 Capacity Blocks."""

JOBS = ("harvest", "annotate", "assemble", "pretrain", "index", "serve")


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Machines of one instance type."""

    instance: str
    """Instance type, a name in ``plan/prices.yaml``: ``p4d.24xlarge``, ``p5.48xlarge``,
    ``c7i.24xlarge``, ``laptop`` …"""

    count: PositiveInt = 1
    """Number of machines."""

    buy: Buying = "on_demand"
    """Pricing model: ``on_demand``, ``spot``, or ``block`` (EC2 Capacity Blocks)."""

    def __post_init__(self) -> None:
        known = prices().instances
        if self.instance not in known:
            raise ValueError(f"instance: choose from {', '.join(known)}, got {self.instance!r}")
        own = known[self.instance]
        if self.buy == "block" and own.block is None:
            offered = [name for name, each in known.items() if each.block is not None]
            raise ValueError(f"buy=block: no price is known; choose from {', '.join(offered)}")
        if self.buy != "block" and own.on_demand is None:
            raise ValueError(f"buy={self.buy}: {self.instance} is sold in blocks; set buy=block")

    @property
    def machine(self) -> Instance:
        """Specification and prices of the instance type."""
        return prices().instances[self.instance]


@dataclass(frozen=True, kw_only=True)
class TrainingFleet(Fleet):
    """Machines of one instance type for training."""

    gpus: PositiveInt | None = None
    """Number of GPUs to train on, at most those of the machines; None: all. Cost is that of whole
    machines. To plan for CPUs, set ``instance=laptop``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        total = self.count * self.machine.gpus
        if self.gpus is not None and self.gpus > total:
            raise ValueError(
                f"gpus: {self.count} x {self.instance} have {total}, not {self.gpus}; raise count"
            )

    @property
    def trained_on(self) -> int:
        """Number of GPUs to train on; 0 on CPUs."""
        return self.gpus or self.count * self.machine.gpus


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Number of articles of the corpus, and share of its train split."""

    articles: PositiveInt
    """Number of articles to harvest, including those without figures."""

    train_share: Annotated[float, Field(gt=0, le=1)] = 0.9495
    """Share of the pairs in the train split. The default is PMC-15M's: 13.9 of 14.64
    million."""


@dataclass(frozen=True, kw_only=True)
class HarvestPlan:
    """Settings of the estimated harvest."""

    recipe: str = "pmc_open_data"
    """A recipe of ``biovl harvest``. Its request limit applies to all machines together."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that replace those of the recipe: ``{"source.requests_per_s": 400}``."""


@dataclass(frozen=True, kw_only=True)
class PretrainPlan:
    """Settings of the estimated pretraining run."""

    recipe: str
    """A recipe of ``biovl pretrain``."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that replace those of the recipe: ``{"step.text": "padded"}``."""

    pairs: Annotated[int, Field(ge=2)] | None = None
    """Pairs per epoch; None: all pairs of the train split."""


@dataclass(frozen=True, kw_only=True)
class ServePlan:
    """Settings of the estimated search service."""

    fleet: Fleet
    """Machines of the service. More are planned if ``count`` is too few for ``queries_per_s``."""
    months: NonNegativeFloat = 1.0
    """Duration of the service, in months."""
    queries_per_s: PositiveFloat = 10.0
    """Peak load, in queries per second."""


@dataclass(frozen=True, kw_only=True)
class PlanConfig:
    """Settings of plan: jobs to estimate, and machines."""

    corpus: CorpusConfig
    """Size of the corpus."""
    pretrain: PretrainPlan
    """Settings of the estimated pretraining run."""
    cpu: Fleet
    """Machines for harvest and assemble. Harvest uses only as many as its request limit keeps
    busy."""

    embed: Fleet
    """Machines for annotate, and for the embeddings of index."""

    train: TrainingFleet
    """Machines for pretrain."""
    serve: ServePlan
    """Settings of the estimated search service."""

    harvest: HarvestPlan = field(default_factory=HarvestPlan)
    """Settings of the estimated harvest."""

    months_kept: NonNegativeFloat = 1.0
    """Duration for which the published folders are stored, in months."""

    jobs: tuple[str, ...] = JOBS
    """Names of the jobs to estimate."""

    assume: Mapping[str, float | tuple[float, float, float]] = field(default_factory=dict)
    """Values that replace those of ``plan/assumptions.yaml``: a known number
    (``assume.utilisation=0.8``), or [low, likely, high]."""

    paper: str | None = None
    """A paper of ``plan/papers.yaml`` to compare the plan with; None: no comparison."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.jobs) - set(JOBS))
        if unknown or not self.jobs:
            raise ValueError(f"jobs: choose from {', '.join(JOBS)}, got {list(self.jobs)}")
        known = assumptions()
        unknown_names = sorted(set(self.assume) - set(known))
        if unknown_names:
            raise ValueError(
                f"assume: there is no {unknown_names[0]!r}; choose from {', '.join(known)}"
            )
        for name in self.assume:
            self.assumed(name)

    def assumed(self, name: str) -> Assumption:
        """Return an assumption: its value in ``assume``, or the one shipped with the package.

        Raises:
            ValueError: If the value in ``assume`` is impossible, or its numbers are not sorted.
        """
        own = assumptions()[name]
        if name not in self.assume:
            return own
        value = self.assume[name]
        low, mid, high = value if isinstance(value, tuple) else (value, value, value)
        try:
            return replace(own, low=low, mid=mid, high=high, how="given", source="set by you")
        except ValueError as error:
            raise ValueError(f"assume.{name}: {error}") from error


def whole_pmc() -> PlanConfig:
    """All of PMC in September 2026: 9.1 M articles, 24 M figures; BiomedCLIP on 16 A100."""
    return _on_aws(
        corpus=CorpusConfig(articles=9_129_850),
        # 24 million figures; with BIOMEDICA's figures per article it would be 36 million.
        assume={"figures_per_article": (2.2, 2.63, 3.98)},
        pretrain=PretrainPlan(recipe="biomedclip"),
        train=TrainingFleet(instance="p4d.24xlarge", count=2),
    )


def pmc_15m() -> PlanConfig:
    """BiomedCLIP's paper: 4.4 M articles, 13.9 M training pairs, 32 epochs on 16 A100."""
    return _on_aws(
        corpus=CorpusConfig(articles=4_400_000),
        # 13.9 M + 13.6 k + 726 k pairs.
        assume={"figures_per_article": 14_639_600 / 4_400_000},
        pretrain=PretrainPlan(recipe="biomedclip", pairs=13_900_000),
        train=TrainingFleet(instance="p4d.24xlarge", count=2),
        paper="biomedclip",
    )


def bmca_clip() -> PlanConfig:
    """BMCA-CLIP's paper: 6.04 M articles, 24.1 M pairs, 9 epochs on 4 H100."""
    return _on_aws(
        corpus=CorpusConfig(articles=6_042_494),
        assume={"figures_per_article": 24_076_288 / 6_042_494},
        pretrain=PretrainPlan(recipe="bmca_clip", pairs=24_076_288),
        train=TrainingFleet(instance="p5.48xlarge", gpus=4),
        paper="bmca_clip",
    )


def bmc_longclip() -> PlanConfig:
    """BMC-LongCLIP's paper: BIOMEDICA-6M, context 512, 20 epochs on 8 H200; includes its corpus."""
    return replace(
        bmca_clip(),
        # Concept filtering leaves 6,602,752 (BIOMEDICA), which this paper calls 6M.
        pretrain=PretrainPlan(recipe="bmc_longclip_512", pairs=6_602_752),
        assume={**bmca_clip().assume, "caption_tokens": (115, 127, 140)},
        train=TrainingFleet(instance="p5en.48xlarge"),
        paper="bmc_longclip",
    )


def one_gpu() -> PlanConfig:
    """100,000 articles and BiomedCLIP on one H100."""
    return replace(
        _on_aws(
            corpus=CorpusConfig(articles=100_000),
            pretrain=PretrainPlan(recipe="biomedclip"),
            train=TrainingFleet(instance="p5.4xlarge"),
        ),
        cpu=Fleet(instance="m7i.8xlarge"),
        embed=Fleet(instance="g6.4xlarge"),
    )


def laptop() -> PlanConfig:
    """100 articles and a tiny model on a laptop."""
    own = Fleet(instance="laptop")
    return PlanConfig(
        corpus=CorpusConfig(articles=100, train_share=0.8),
        harvest=HarvestPlan(recipe="packages"),
        pretrain=PretrainPlan(recipe="tiny"),
        cpu=own,
        embed=own,
        train=TrainingFleet(instance="laptop"),
        serve=ServePlan(fleet=own, queries_per_s=1.0),
        # Files are local, and nothing boots.
        assume={"s3_wait_ms": 0.1, "start_minutes": 0.5, "annotate_gflop": 11.0},
    )


def _on_aws(
    *,
    corpus: CorpusConfig,
    pretrain: PretrainPlan,
    train: TrainingFleet,
    assume: Mapping[str, float | tuple[float, float, float]] | None = None,
    paper: str | None = None,
) -> PlanConfig:
    """Return a plan with the machines of cluster.yaml, at its maximum sizes."""
    return PlanConfig(
        corpus=corpus,
        pretrain=pretrain,
        cpu=Fleet(instance="m7i.8xlarge", count=20, buy="spot"),
        embed=Fleet(instance="g6.4xlarge", count=8),
        train=train,
        serve=ServePlan(fleet=Fleet(instance="g6.4xlarge")),
        assume=assume or {},
        paper=paper,
    )


RECIPES: dict[str, Recipe[PlanConfig]] = {
    "whole_pmc": whole_pmc,
    "pmc_15m": pmc_15m,
    "bmca_clip": bmca_clip,
    "bmc_longclip": bmc_longclip,
    "one_gpu": one_gpu,
    "laptop": laptop,
}
