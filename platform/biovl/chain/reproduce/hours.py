"""Estimated hours of the steps of tables, computed by the job ``plan``."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from biovl.chain.reproduce.graph import Graph
from biovl.chain.reproduce.papers import Entry, Papers
from biovl.plan.config import RECIPES
from biovl.plan.sensitivity import mid
from biovl.plan.steps import Cost, Planner

_PLANNED = ("harvest", "annotate", "assemble", "pretrain")


def costs(graph: Graph, papers: Papers) -> dict[str, Cost]:
    """Return the estimated costs by step, of steps that ``plan`` supports; none for ``small``."""
    if graph.is_small:
        return {}
    found = {}
    for step in graph.steps:
        entry = papers.steps.get(step.name)
        if entry is not None and entry.plan and entry.job in _PLANNED:
            found[step.name] = _cost(entry, graph.chain.settings[step.name])
    return found


def _cost(entry: Entry, settings: Mapping[str, Any]) -> Cost:
    """Return the estimated cost of a step with its settings."""
    plain = dict(settings)
    config = RECIPES[entry.plan["preset"]]()
    if entry.job == "pretrain":
        recipe = str(plain.pop("recipe"))
        changes = {setting: v for setting, v in plain.items() if not setting.startswith(_LEFT_OUT)}
        pairs = entry.plan.get("pairs", config.pretrain.pairs)
        plan = dataclasses.replace(config.pretrain, recipe=recipe, changes=changes, pairs=pairs)
        config = dataclasses.replace(config, pretrain=plan)
    cost: Cost = getattr(Planner(config, mid(config)), entry.job)()
    return cost


_LEFT_OUT = ("workers", "out", "corpus", "corpora", "trackers")
"""Settings that the estimate does not depend on, or has of its own."""
