"""Sensitivity of a plan to each assumption."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from biovl.plan.config import PlanConfig
from biovl.plan.steps import Cost, Planner, storage_dollars
from biovl.plan.tables import Assumption, assumptions


@dataclass(frozen=True, kw_only=True)
class Total:
    """Totals over all jobs of a plan."""

    hours: float
    """Hours of all jobs in sequence, without the service."""

    gpu_hours: float
    """GPU hours without those of the service."""

    dollars: float
    """Cost of all jobs, the service, and storage of published data, in dollars."""


@dataclass(frozen=True, kw_only=True)
class Swing:
    """Totals of a plan for the lowest and the highest value of one assumption."""

    name: str
    assumption: Assumption
    low: Total
    high: Total

    @property
    def dollars(self) -> float:
        """Absolute difference between the two costs, in dollars."""
        return abs(self.high.dollars - self.low.dollars)

    @property
    def hours(self) -> float:
        """Absolute difference between the two durations, in hours."""
        return abs(self.high.hours - self.low.hours)


def mid(config: PlanConfig) -> dict[str, float]:
    """Return the likely value of every assumption of a plan."""
    return {name: config.assumed(name).mid for name in assumptions()}


def total(config: PlanConfig, costs: Iterable[Cost], price_level: float) -> Total:
    """Return the totals over the jobs of a plan."""
    costs = list(costs)
    made = [cost for cost in costs if cost.job != "serve"]
    return Total(
        hours=sum(cost.hours for cost in made),
        gpu_hours=sum(cost.gpu_hours for cost in made),
        dollars=sum(cost.dollars for cost in costs) + storage_dollars(config, costs, price_level),
    )


def swings(config: PlanConfig) -> list[Swing]:
    """Return the effect of each assumption by itself, the largest difference in dollars first."""
    likely = mid(config)

    def at(name: str, value: float) -> Total:
        assumed = {**likely, name: value}
        return total(config, Planner(config, assumed).costs(), assumed["price_level"])

    result = [
        Swing(name=name, assumption=own, low=at(name, own.low), high=at(name, own.high))
        for name, own in ((name, config.assumed(name)) for name in likely)
        if own.low < own.high
    ]
    # Ordered by hours if the plan has no prices.
    return sorted(result, key=lambda each: (-each.dollars, -each.hours))


def spread(likely: float, ends: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the likely range of a total if all assumptions are uncertain.

    Deviations are added in quadrature, as for independent errors, separately below and above.
    """
    pairs = [(min(pair), max(pair)) for pair in ends]
    below = math.sqrt(sum(max(0.0, likely - low) ** 2 for low, _ in pairs))
    above = math.sqrt(sum(max(0.0, high - likely) ** 2 for _, high in pairs))
    return max(0.0, likely - below), likely + above
