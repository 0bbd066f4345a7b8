"""Report of a plan, as text at most 100 columns wide, and as JSON."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.core.markdown import plain_table
from biovl.plan import papers
from biovl.plan.config import PlanConfig, TrainingFleet
from biovl.plan.papers import Row
from biovl.plan.sensitivity import Swing, Total, mid, spread, swings, total
from biovl.plan.steps import Cost, DataSizes, Planner, storage_dollars
from biovl.plan.tables import prices

_OTHER_GPUS = ("p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5en.48xlarge")
"""A100-40, A100-80, H100 and H200."""

_SWINGS_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """Cost of a plan's training on another instance type."""

    accelerator: str
    pairs_per_s: float
    micro_batch: int | None
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class CostPlan:
    """Estimated sizes and costs of all jobs of a run."""

    config: PlanConfig
    sizes: DataSizes
    costs: list[Cost]
    storage_dollars: float
    total: Total
    dollars_between: tuple[float, float]
    hours_between: tuple[float, float]
    """Likely range of the hours, if all assumptions are uncertain."""

    swings: list[Swing]
    alternatives: list[Alternative]
    compared: dict[str, tuple[str, list[Row]]]
    advice: list[str]
    warnings: list[str]


def reckon(config: PlanConfig, *, compare_all: bool = False) -> CostPlan:
    """Return the estimate for a configuration; ``compare_all`` adds other instance types.

    Raises:
        ConfigError: If a setting is invalid, a recipe or paper does not exist, or training does not
            fit into memory.
    """
    config = configs.validated(config)
    if config.paper is not None and config.paper not in papers.names():
        raise ConfigError(f"paper: choose from {', '.join(papers.names())}, got {config.paper!r}")
    assumed = mid(config)
    planner = Planner(config, assumed)
    costs = planner.costs()
    level = assumed["price_level"]
    likely = total(config, costs, level)
    found = swings(config)
    ends = [each.ends for each in found]
    compared = papers.names() if compare_all else [config.paper] if config.paper else []
    others = alternatives(planner)
    return CostPlan(
        config=config,
        sizes=planner.sizes,
        costs=costs,
        storage_dollars=storage_dollars(config, costs, level),
        total=likely,
        dollars_between=spread(likely.dollars, ((low.dollars, high.dollars) for low, high in ends)),
        hours_between=spread(likely.hours, ((low.hours, high.hours) for low, high in ends)),
        swings=found,
        alternatives=others,
        compared={name: papers.compare(name) for name in compared},
        advice=list(_advice(planner, costs, likely, found, others)),
        warnings=list(_warnings(planner, costs, found)),
    )


def alternatives(planner: Planner) -> list[Alternative]:
    """Return the cost of training on the same number of other GPUs.

    They are bought as those of the plan; on demand where no Capacity Block is sold.
    """
    train = planner.config.train
    gpus = train.trained_on
    if not gpus or "pretrain" not in planner.config.jobs:
        return []
    found = []
    for name in _OTHER_GPUS:
        machine = prices().instances[name]
        count = math.ceil(gpus / machine.gpus)
        buy = "on_demand" if train.buy == "block" and machine.block is None else train.buy
        fleet = TrainingFleet(instance=name, count=count, gpus=gpus, buy=buy)
        other = Planner(replace(planner.config, train=fleet), planner.assumed)
        run = other.training()
        if run.forecast.pairs_per_s is None:
            continue
        found.append(
            Alternative(
                accelerator=run.forecast.accelerator.name,
                pairs_per_s=run.forecast.pairs_per_s,
                micro_batch=run.micro_batch,
                cost=other.pretrain(),
            )
        )
    return found


def _advice(
    planner: Planner,
    costs: Sequence[Cost],
    likely: Total,
    found: Sequence[Swing],
    others: Sequence[Alternative],
) -> Iterable[str]:
    by_job = {cost.job: cost for cost in costs}
    if likely.dollars:
        largest = max(costs, key=lambda cost: cost.dollars)
        share = largest.dollars / likely.dollars
        decides = (
            f"; the number that decides most is {found[0].name} ({_money(found[0].dollars)} "
            "between its ends)"
            if found
            else ""
        )
        yield (
            f"{largest.job} is {share:.0%} of the dollars, bound by {largest.bound_by}{decides}."
        )
    else:
        jobs = [cost for cost in costs if cost.job != "serve"]
        longest = max(jobs, key=lambda cost: cost.hours, default=None)
        takes = f"; {longest.job} takes longest, bound by {longest.bound_by}" if longest else ""
        yield f"Nothing is paid for{takes}."
    pretrain = by_job.get("pretrain")
    if pretrain is None or not pretrain.compute_dollars:
        return
    held, gb_month = pretrain.storage_gb["checkpoints"], prices().s3.gb_month
    saved = ""
    if planner.config.train.buy == "on_demand":
        spot = planner.assumed["spot_discount"] * (
            pretrain.compute_dollars - pretrain.helper_dollars
        )
        saved = f"; spot would save about {_money(spot)} of training, if available"
    yield (f"Checkpoints hold {_gb(held)}, {_money(held * gb_month, cents=True)} a month{saved}.")
    best = min(others, key=lambda each: each.cost.dollars, default=None)
    if best is not None and best.cost.dollars < 0.95 * pretrain.dollars:
        less = pretrain.dollars - best.cost.dollars
        yield f"The same on {best.cost.machines} costs {_money(less)} less."


def _warnings(planner: Planner, costs: Sequence[Cost], found: Sequence[Swing]) -> Iterable[str]:
    jobs = {cost.job for cost in costs}
    # Of serve only: without a model of the plan, its embeddings have no length.
    if "serve" in jobs:
        machine, hot = planner.config.serve.fleet.machine, planner.hot_gb()
        if hot > 0.7 * machine.memory_gib * 1.074:
            yield (
                f"an index of {hot:,.0f} GB does not fit with a model into "
                f"{machine.memory_gib:,.0f} GiB: choose a larger serve.fleet.instance, or index "
                "low_memory"
            )
    for each in found:
        for end, reason in each.left_out.items():
            value = each.assumption.low if end == "low" else each.assumption.high
            yield (
                f"{each.name} at its {end}, {value:,.4g}, is left out of the likely range, as "
                f"nothing can be planned with it: {reason}"
            )
    if "annotate" in jobs:
        yield "annotate is not measured on a GPU: its rate is an assumption"
    harvest = next((cost for cost in costs if cost.job == "harvest"), None)
    if harvest is not None and "source." in harvest.bound_by:
        yield (
            f"harvest waits for {harvest.bound_by}, which holds for all machines together; raise "
            "it in harvest.changes and in the job"
        )
    if jobs & {"annotate", "index"} and planner.config.embed.machine.gpus:
        yield "on GPUs as planned: annotate with workers.gpus=1, and index with the recipe on_gpus"
    if "assemble" in jobs:
        yield "images of 288 px as planned: assemble with the recipe training"
    train = planner.config.train
    idle = train.count * train.machine.gpus - train.trained_on
    if idle and "pretrain" in jobs:
        yield f"{idle} GPUs of {train.instance} are paid for and idle"


# --- as text ----------------------------------------------------------------------------------


def render(plan: CostPlan) -> str:
    """Return the estimated plan as text."""
    config, sizes = plan.config, plan.sizes
    lines = [
        f"{sizes.articles:,.0f} articles, {sizes.figures:,.0f} figures, {sizes.pairs:,.0f} pairs; "
        f"{config.pretrain.recipe} on {sizes.train_pairs:,} pairs an epoch",
        f"Prices of {prices().date}, us-east-1: {prices().note}. Nothing here ran on a GPU.",
        "",
        *_jobs(plan),
        "",
        *_storage(plan),
        *_alternatives(plan),
        "",
        *_tornado(plan),
    ]
    for title, rows in plan.compared.values():
        lines += ["", *_compared(title, rows)]
    lines += ["", *(f"* {line}" for line in plan.advice)]
    lines += [f"! {line}" for line in plan.warnings]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _jobs(plan: CostPlan) -> list[str]:
    heads = ("job", "machines", "time", "GPU-hours", "CPU-hours", "dollars", "bound by")
    rows: list[Sequence[str]] = [heads]
    for cost in plan.costs:
        gpu_hours = _count(cost.gpu_hours) if cost.gpu_hours else ""
        rows.append(
            (
                cost.job,
                cost.machines,
                _time(cost.hours),
                gpu_hours,
                _count(cost.cpu_hours),
                _money(cost.dollars),
                cost.bound_by,
            )
        )
    kept = f"S3, months: {plan.config.months_kept:g}"
    rows.append(("storage", kept, "", "", "", _money(plan.storage_dollars), ""))
    cpu_hours = sum(cost.cpu_hours for cost in plan.costs if cost.job != "serve")
    sums = plan.total
    rows.append(
        (
            "all",
            "time without serve",
            _time(sums.hours),
            _count(sums.gpu_hours),
            _count(cpu_hours),
            _money(sums.dollars),
            "",
        )
    )
    low, high = plan.dollars_between
    least, most = plan.hours_between
    return [
        *plain_table(rows, left={0, 1, 6}),
        "",
        "Time and dollars include lost_time and start_minutes; GPU-hours and CPU-hours are of the",
        "work alone.",
        f"Likely between {_money(low)} and {_money(high)}, {_time(least)} and {_time(most)}, as "
        "the assumptions below go.",
    ]


def _storage(plan: CostPlan) -> list[str]:
    rows: list[Sequence[str]] = [
        ("job", "leaves", "a month", "reads", "requests: open data", "get", "put")
    ]
    gb_month = prices().s3.gb_month if plan.config.cpu.machine.on_demand else 0.0
    for cost in plan.costs:
        folders = [f"{name} {_gb(size)}" for name, size in cost.storage_gb.items()]
        rows.append(
            (
                cost.job,
                ", ".join(folders),
                _money(sum(cost.storage_gb.values()) * gb_month, cents=True) if folders else "",
                _gb(cost.read_gb) if cost.read_gb else "",
                _count(cost.source_requests) if cost.source_requests else "",
                _count(cost.get_requests) if cost.get_requests else "",
                _count(cost.put_requests) if cost.put_requests else "",
            )
        )
    return [
        "Storage and network (traffic within a region is free; the open-data bucket's",
        "owner pays for its requests; reach S3 by a gateway endpoint, not by NAT)",
        *plain_table(rows, left={0, 1}),
    ]


def _alternatives(plan: CostPlan) -> list[str]:
    if not plan.alternatives:
        return []
    rows: list[Sequence[str]] = [
        ("training on", "GPU", "pairs/s", "at a time", "time", "GPU-hours", "dollars")
    ]
    for each in plan.alternatives:
        rows.append(
            (
                each.cost.machines,
                each.accelerator,
                f"{each.pairs_per_s:,.0f}",
                f"{each.micro_batch:,}" if each.micro_batch else "",
                _time(each.cost.hours),
                _count(each.cost.gpu_hours),
                _money(each.cost.dollars),
            )
        )
    return ["", *plain_table(rows, left={0, 1})]


def _tornado(plan: CostPlan) -> list[str]:
    rows: list[Sequence[str]] = [("assumption", "low", "mid", "high", "how", "dollars", "hours")]
    for each in plan.swings[:_SWINGS_SHOWN]:
        own = each.assumption
        rows.append(
            (
                each.name,
                f"{own.low:,.4g}",
                f"{own.mid:,.4g}",
                f"{own.high:,.4g}",
                own.how,
                " … ".join(_change(end, plan.total, "dollars") for end in (each.low, each.high)),
                " … ".join(_change(end, plan.total, "hours") for end in (each.low, each.high)),
            )
        )
    more = len(plan.swings) - _SWINGS_SHOWN
    table = plain_table(rows, left={0, 4})
    return [
        "Change of the total dollars and hours if one assumption has its low … its high value",
        *table,
        *([f"  and {more} with less effect (in the JSON)"] if more > 0 else []),
    ]


def _compared(title: str, rows: Sequence[Row]) -> list[str]:
    cells: list[Sequence[str]] = [("", "paper", "plan", "ratio", "")]
    notes = []
    for number, row in enumerate(rows, start=1):
        planned = _value(row.planned)
        if row.between is not None:
            planned += f" ({_value(row.between[0])}–{_value(row.between[1])})"
        ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
        cells.append(
            (
                f"{row.what}{f', {row.unit}' if row.unit else ''}",
                "not reported" if row.reported is None else _value(row.reported),
                planned,
                "taken over" if row.is_given else ratio,
                f"[{number}]",
            )
        )
        notes.append(f"  [{number}] {row.where}{f' / {row.remark}' if row.remark else ''}")
    return [title, *plain_table(cells, left={0}), *notes]


def _money(dollars: float, *, cents: bool = False) -> str:
    return f"${dollars:,.2f}" if cents and dollars < 100 else f"${dollars:,.0f}"


def _change(end: Total | None, likely: Total, what: Literal["dollars", "hours"]) -> str:
    """Return the difference of an end to the likely total; a dash if it is left out."""
    if end is None:
        return "–"
    base = getattr(likely, what)
    return f"{getattr(end, what) / base - 1:+.0%}" if base else "0%"


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:,.1f} M"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _value(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:,.2f} M"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _gb(size: float) -> str:
    if size >= 1e3:
        return f"{size / 1e3:,.1f} TB"
    return f"{size:,.1f} GB" if size >= 0.1 else f"{size * 1e3:,.1f} MB"


def _time(hours: float) -> str:
    if hours >= 72:
        return f"{hours / 24:,.1f} days"
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"


# --- as JSON ----------------------------------------------------------------------------------


def to_json(plan: CostPlan) -> dict[str, Any]:
    """Return a plan as JSON-ready values: times in hours, sizes in GB, costs in US dollars."""
    return {
        "config": configs.to_plain(plan.config),
        "prices": {"date": prices().date, "note": prices().note},
        "sizes": dataclasses.asdict(plan.sizes),
        "jobs": {cost.job: _plain(cost) for cost in plan.costs},
        "storage_dollars": plan.storage_dollars,
        "total": dataclasses.asdict(plan.total),
        "between": {"dollars": plan.dollars_between, "hours": plan.hours_between},
        "training_on": [
            {
                "accelerator": each.accelerator,
                "pairs_per_s": each.pairs_per_s,
                "micro_batch": each.micro_batch,
                **_plain(each.cost),
            }
            for each in plan.alternatives
        ],
        "sensitivity": [_without_likely(each) for each in plan.swings],
        "papers": {
            name: [{**dataclasses.asdict(row), "ratio": row.ratio} for row in rows]
            for name, (_, rows) in plan.compared.items()
        },
        "advice": plan.advice,
        "warnings": plan.warnings,
    }


def _without_likely(swing: Swing) -> Mapping[str, Any]:
    """Return a swing as JSON-ready values; its likely totals are those of the plan."""
    return {name: v for name, v in dataclasses.asdict(swing).items() if name != "likely"}


def _plain(cost: Cost) -> Mapping[str, Any]:
    return {**dataclasses.asdict(cost), "dollars": cost.dollars}
