"""The settings of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from biovl.core.config import Recipe
from biovl.plan.tables import Assumption, Instance, assumptions, prices

Buying = Literal["on_demand", "spot", "block"]

JOBS = ("harvest", "annotate", "assemble", "pretrain", "index", "serve")


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Machines of one kind."""

    instance: str
    """A name in ``plan/prices.yaml``: p4d.24xlarge, p5.48xlarge, c7i.24xlarge, laptop …"""

    count: int = 1
    """How many of them."""

    buy: Buying = "on_demand"
    """on_demand, spot, or block (EC2 Capacity Blocks)."""

    def __post_init__(self) -> None:
        known = prices().instances
        if self.instance not in known:
            raise ValueError(f"instance: choose from {', '.join(known)}, got {self.instance!r}")
        if self.count < 1:
            raise ValueError(f"count: at least 1 machine is needed, got {self.count}")
        own = known[self.instance]
        if self.buy == "block" and own.block is None:
            offered = [name for name, each in known.items() if each.block is not None]
            raise ValueError(f"buy=block: no price is known; choose from {', '.join(offered)}")
        if self.buy != "block" and own.on_demand is None:
            raise ValueError(f"buy={self.buy}: {self.instance} is sold in blocks; set buy=block")

    @property
    def machine(self) -> Instance:
        """The machine by its data sheet and prices."""
        return prices().instances[self.instance]


@dataclass(frozen=True, kw_only=True)
class TrainingFleet(Fleet):
    """Machines of one kind that train."""

    gpus: int | None = None
    """How many of their GPUs train; None takes all. Whole machines are paid for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        there = self.count * self.machine.gpus
        if self.gpus is not None and self.gpus < 1:
            raise ValueError(
                f"gpus: at least 1 is needed, got {self.gpus}; leave it out to take all, or plan "
                "for CPUs with instance=laptop"
            )
        if self.gpus is not None and self.gpus > there:
            raise ValueError(
                f"gpus: {self.count} x {self.instance} have {there}, not {self.gpus}; raise count"
            )


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """How much there is to read."""

    articles: int
    """That are read, with figures or without."""

    train_share: float = 0.9495
    """Of the pairs (the default is PMC-15M's: 13.9 of 14.64 million)."""

    def __post_init__(self) -> None:
        if self.articles < 1:
            raise ValueError(f"articles must be positive, got {self.articles}")
        if not 0 < self.train_share <= 1:
            raise ValueError(f"train_share must be in (0, 1], got {self.train_share}")


@dataclass(frozen=True, kw_only=True)
class HarvestPlan:
    """How articles are read."""

    recipe: str = "pmc_open_data"
    """Of ``pipelines/harvest.py``; its limit of requests holds for all machines together."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that replace those of the recipe: ``{"source.requests_per_s": 400}``."""


@dataclass(frozen=True, kw_only=True)
class PretrainPlan:
    """What is trained."""

    recipe: str
    """Of ``pipelines/pretrain.py``."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that replace those of the recipe: ``{"step.text": "padded"}``."""

    pairs: int | None = None
    """Of an epoch; None takes those of the corpus that are for training."""

    def __post_init__(self) -> None:
        if self.pairs is not None and self.pairs < 2:
            raise ValueError(f"pairs: a batch needs at least 2, got {self.pairs}")


@dataclass(frozen=True, kw_only=True)
class ServePlan:
    """What answers searches."""

    fleet: Fleet
    months: float = 1.0
    queries_per_s: float = 10.0
    """At the busiest; more machines than ``fleet.count`` are planned where these do not do."""

    def __post_init__(self) -> None:
        if self.months < 0 or self.queries_per_s <= 0:
            raise ValueError("months must not be negative, queries_per_s must be positive")


@dataclass(frozen=True, kw_only=True)
class PlanConfig:
    """What to reckon."""

    corpus: CorpusConfig
    pretrain: PretrainPlan
    cpu: Fleet
    """Reads, parses and assembles. Of these a harvest takes as many as its requests keep busy."""

    embed: Fleet
    """Annotates and embeds for the index."""

    train: TrainingFleet
    serve: ServePlan

    harvest: HarvestPlan = field(default_factory=HarvestPlan)

    months_kept: float = 1.0
    """How long what is published is stored."""

    jobs: tuple[str, ...] = JOBS
    """Which jobs to reckon."""

    assume: Mapping[str, float | tuple[float, float, float]] = field(default_factory=dict)
    """Other numbers than those of ``plan/rates.yaml``: one that is known
    (``assume.utilisation=0.8``), or its least, likely and greatest value."""

    paper: str | None = None
    """What ``plan/papers.yaml`` compares the plan with."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.jobs) - set(JOBS))
        if unknown or not self.jobs:
            raise ValueError(f"jobs: choose from {', '.join(JOBS)}, got {list(self.jobs)}")
        known = assumptions()
        strange = sorted(set(self.assume) - set(known))
        if strange:
            raise ValueError(f"assume: there is no {strange[0]!r}; choose from {', '.join(known)}")
        if self.months_kept < 0:
            raise ValueError(f"months_kept must not be negative, got {self.months_kept}")
        for name in self.assume:
            self.assumed(name)

    def assumed(self, name: str) -> Assumption:
        """Return an assumption, as set here or as it comes with the package."""
        own = assumptions()[name]
        if name not in self.assume:
            return own
        given = self.assume[name]
        low, mid, high = given if isinstance(given, tuple) else (given, given, given)
        try:
            return replace(own, low=low, mid=mid, high=high, how="given", source="set by you")
        except ValueError as error:
            raise ValueError(f"assume.{name}: {error}") from error


def whole_pmc() -> PlanConfig:
    """All of PMC in September 2026, 9.1 M articles and 24 M figures; BiomedCLIP on 16 A100."""
    return _on_aws(
        corpus=CorpusConfig(articles=9_129_850),
        # 24 million figures; as many an article as in BIOMEDICA would be 36 million.
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
    """BMC-LongCLIP's paper: BIOMEDICA-6M, context 512, 20 epochs on 8 H200; its corpus as well."""
    return replace(
        bmca_clip(),
        # Concept filtering leaves 6,602,752 (BIOMEDICA), which this paper calls 6M.
        pretrain=PretrainPlan(recipe="bmc_longclip_512", pairs=6_602_752),
        assume={**bmca_clip().assume, "caption_tokens": (115, 127, 140)},
        train=TrainingFleet(instance="p5en.48xlarge"),
        paper="bmc_longclip",
    )


def one_gpu() -> PlanConfig:
    """A hundred thousand articles and BiomedCLIP on one H100."""
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
    """A hundred articles and a tiny model on a laptop of your own."""
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
    """Return a plan with what cluster.yaml orders, and the most that it does."""
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
