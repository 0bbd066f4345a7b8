"""How much a plan depends on each number that it assumes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from biovl.plan.config import PlanConfig
from biovl.plan.steps import Cost, Planner, storage_dollars
from biovl.plan.tables import Assumption, assumptions


@dataclass(frozen=True, kw_only=True)
class Total:
    """All jobs together."""

    hours: float
    """One job after the other, without serving."""

    gpu_hours: float
    """Without serving."""

    dollars: float
    """All jobs, serving and keeping what is published."""


@dataclass(frozen=True, kw_only=True)
class Swing:
    """What becomes of the total when one number is at its least, and at its greatest."""

    name: str
    assumption: Assumption
    low: Total
    high: Total

    @property
    def dollars(self) -> float:
        """How far apart the two are."""
        return abs(self.high.dollars - self.low.dollars)

    @property
    def hours(self) -> float:
        """How far apart the two are."""
        return abs(self.high.hours - self.low.hours)


def mid(config: PlanConfig) -> dict[str, float]:
    """Return the likely value of every assumption of a plan."""
    return {name: config.assumed(name).mid for name in assumptions()}


def total(config: PlanConfig, costs: Iterable[Cost], price_level: float) -> Total:
    """Return the sum of jobs."""
    costs = list(costs)
    made = [cost for cost in costs if cost.job != "serve"]
    return Total(
        hours=sum(cost.hours for cost in made),
        gpu_hours=sum(cost.gpu_hours for cost in made),
        dollars=sum(cost.dollars for cost in costs) + storage_dollars(config, costs, price_level),
    )


def swings(config: PlanConfig) -> list[Swing]:
    """Return what each assumption does by itself, those that move the dollars most first."""
    likely = mid(config)

    def at(name: str, value: float) -> Total:
        assumed = {**likely, name: value}
        return total(config, Planner(config, assumed).costs(), assumed["price_level"])

    found = [
        Swing(name=name, assumption=own, low=at(name, own.low), high=at(name, own.high))
        for name, own in ((name, config.assumed(name)) for name in likely)
        if own.low < own.high
    ]
    # Hours decide where nothing is paid for.
    return sorted(found, key=lambda each: (-each.dollars, -each.hours))


def spread(likely: float, ends: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return where a total likely is when all assumptions may be off, each by itself.

    Their effects add like independent errors, as squares, those below and those above apart.
    """
    pairs = [(min(pair), max(pair)) for pair in ends]
    below = math.sqrt(sum(max(0.0, likely - low) ** 2 for low, _ in pairs))
    above = math.sqrt(sum(max(0.0, high - likely) ** 2 for _, high in pairs))
    return max(0.0, likely - below), likely + above
