"""Compare plans with the numbers that papers report."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from biovl.plan.config import RECIPES, PlanConfig, PretrainPlan
from biovl.plan.pretraining import accelerator_named, lengths, training
from biovl.plan.sensitivity import mid
from biovl.plan.steps import Planner
from biovl.plan.tables import assumptions, read

_MANY = 100_000
"""Number of synthetic captions from which quantiles are computed."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A number reported by a paper, next to the planned one."""

    what: str
    unit: str
    reported: float | None
    planned: float
    between: tuple[float, float] | None
    """Planned training hours at the highest and the lowest utilisation; None for other numbers."""

    is_given: bool
    """Whether the number is an input of the plan, so that both are equal by definition."""

    where: str
    remark: str

    @property
    def ratio(self) -> float | None:
        """Planned number divided by the reported one; None if the paper does not report it."""
        return None if self.reported is None else self.planned / self.reported


def compare(paper: str) -> tuple[str, list[Row]]:
    """Return the title of a paper and its rows, planned with the preset of that paper."""
    if paper == "stock":
        return read("papers.yaml")["stock"]["title"], _stock()
    entry = read("papers.yaml")[paper]
    facts = _Facts(entry["preset"], entry["published"])
    return entry["title"], [
        Row(
            what=row["what"],
            unit=row["unit"],
            reported=row["reported"],
            planned=facts.planned(row["planned"]),
            between=facts.between(row["planned"]),
            is_given=row.get("given", False),
            where=row["where"],
            remark=row["remark"],
        )
        for row in entry["rows"]
    ]


def names() -> list[str]:
    """Return the names of the papers that plans can be compared with."""
    return list(read("papers.yaml"))


class _Facts:
    """Planned numbers of a preset, by their names in ``papers.yaml``."""

    def __init__(self, preset: str, published: Mapping[str, Any]) -> None:
        self._config = RECIPES[preset]()
        # The papers do not compile.
        changes = {"step.compile": False, **published}
        changed = replace(self._config.pretrain, changes=changes)
        self._published = replace(self._config, pretrain=changed)
        self._known: dict[str, Callable[[], float]] = {
            "hours": lambda: self._hours(self._config),
            "hours_published": lambda: self._hours(self._published),
            "time_384": self._time_384,
            "gpus": lambda: float(self._planner().training().forecast.workers),
            "micro_batch_published": self._micro_batch,
            "pairs": lambda: self._planner().sizes.pairs,
            "assemble_hours": lambda: self._planner().assemble().hours,
            "assemble_core_hours": self._assemble_core_hours,
            "harvest_hours": lambda: self._planner().harvest().hours,
            "data_hours": self._data_hours,
            "data_tb": self._data_tb,
            "median_tokens": lambda: float(np.median(self._lengths_N)),
            "iqr_tokens": lambda: float(np.subtract(*np.percentile(self._lengths_N, [75, 25]))),
            "within_256": lambda: float(np.mean(self._lengths_N + 2 <= 256)),
            "lost_77": lambda: self._lost(77),
            "lost_512": lambda: self._lost(512),
            "biomedclip_flops": self._biomedclip_flops,
        }

    def planned(self, name: str) -> float:
        """Return a number of the plan."""
        return self._known[name]()

    def between(self, name: str) -> tuple[float, float] | None:
        """Return the hours of training at the highest and the lowest assumed utilisation."""
        config = {"hours": self._config, "hours_published": self._published}.get(name)
        if config is None:
            return None
        own = config.assumed("utilisation")
        return self._hours(config, own.high), self._hours(config, own.low)

    def _planner(self, config: PlanConfig | None = None, **other: float) -> Planner:
        config = config or self._config
        return Planner(config, {**mid(config), **other})

    def _hours(self, config: PlanConfig, utilisation: float | None = None) -> float:
        other = {} if utilisation is None else {"utilisation": utilisation}
        return self._planner(config, **other).pretrain().hours

    def _time_384(self) -> float:
        larger = replace(self._published.pretrain, recipe="biomedclip_384")
        runs = [
            self._planner(replace(self._published, pretrain=plan)).training().hours
            for plan in (larger, self._published.pretrain)
        ]
        return runs[0] / runs[1]

    def _micro_batch(self) -> float:
        return float(self._planner(self._published).training().micro_batch or 0)

    def _assemble_core_hours(self) -> float:
        planner = self._planner()
        return planner.assemble().cpu_hours * planner.assumed["vcpu_speed"]

    def _data_hours(self) -> float:
        planner = self._planner()
        return sum(job().hours for job in (planner.harvest, planner.annotate, planner.assemble))

    def _data_tb(self) -> float:
        planner = self._planner()
        sizes = [planner.harvest().storage_gb, planner.assemble().storage_gb]
        return sum(sum(each.values()) for each in sizes) / 1e3

    @functools.cached_property
    def _lengths_N(self) -> np.ndarray:
        return lengths(mid(self._config)["caption_tokens"], _MANY) - 2

    def _lost(self, context: int) -> float:
        return float(np.maximum(0, self._lengths_N - context).sum() / self._lengths_N.sum())

    def _biomedclip_flops(self) -> float:
        other = RECIPES["pmc_15m"]()
        flops = []
        for config in (other, self._config):
            run = self._planner(config).training()
            flops.append(run.flops_per_pair_padded * run.pairs)
        return flops[0] / flops[1]


def _stock() -> list[Row]:
    """Return GPU-hours of published open_clip runs, and planned ones at the default utilisation."""
    utilisation, rows = assumptions()["utilisation"], []
    for run in read("papers.yaml")["stock"]["runs"]:
        plan = PretrainPlan(
            recipe="biomedclip_vit_b16_openai",
            changes={
                "model.architecture": run["architecture"],
                "model.weights": "",
                "batch.pairs": run["batch"],
                "epochs": 1,
                "step.text": "padded",
                "step.checkpoint_activations": run["checkpointed"],
                "step.compile": False,
            },
        )

        def gpu_hours(share: float, plan: PretrainPlan = plan, run: Any = run) -> float:
            found = training(
                plan,
                pairs=13_000_000_000,
                caption_tokens=20.0,
                accelerator=accelerator_named("A100-40"),
                workers=run["workers"],
                utilisation=share,
            )
            return found.hours * float(run["workers"])

        rows.append(
            Row(
                what=run["what"],
                unit="h",
                reported=run["reported"],
                planned=gpu_hours(utilisation.mid),
                between=(gpu_hours(utilisation.high), gpu_hours(utilisation.low)),
                is_given=False,
                where="training logs of LAION, 2021 and 2022",
                remark="without flash attention and torch.compile",
            )
        )
    return rows
