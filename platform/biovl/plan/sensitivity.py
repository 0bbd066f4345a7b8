"""Sensitivity of a plan to each assumption."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from biovl.core.errors import ConfigError
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
    low: Total | None
    high: Total | None
    """None: nothing can be planned with that value, such as too few pairs for a batch."""

    likely: Total
    """Totals for its likely value."""
    left_out: Mapping[str, str]
    """Reason by end, ``low`` or ``high``, of those that are None."""

    @property
    def ends(self) -> tuple[Total, Total]:
        """Totals for the lowest and highest value; the likely totals replace one that is None."""
        return self.low or self.likely, self.high or self.likely

    @property
    def dollars(self) -> float:
        """Absolute difference between the two costs, in dollars."""
        low, high = self.ends
        return abs(high.dollars - low.dollars)

    @property
    def hours(self) -> float:
        """Absolute difference between the two durations, in hours."""
        low, high = self.ends
        return abs(high.hours - low.hours)


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
    """Return the effect of each assumption by itself, the largest difference in dollars first.

    Raises:
        ConfigError: If nothing can be planned with the likely values.
    """
    likely = mid(config)

    def at(name: str, value: float) -> Total:
        assumed = {**likely, name: value}
        return total(config, Planner(config, assumed).costs(), assumed["price_level"])

    middle = total(config, Planner(config, likely).costs(), likely["price_level"])
    result = []
    for name in likely:
        own = config.assumed(name)
        if own.low == own.high:
            continue
        ends, left_out = dict[str, Total](), dict[str, str]()
        for end, value in (("low", own.low), ("high", own.high)):
            # What is planned for the likely value may not be possible with an extreme one.
            try:
                ends[end] = at(name, value)
            except ConfigError as error:
                left_out[end] = str(error)
        result.append(
            Swing(
                name=name,
                assumption=own,
                low=ends.get("low"),
                high=ends.get("high"),
                likely=middle,
                left_out=left_out,
            )
        )
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
