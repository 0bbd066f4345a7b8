"""Estimated hours of the steps of tables, computed by the job ``plan``."""

import dataclasses
from collections.abc import Mapping

from biovl.chain.reproduce.graph import Graph
from biovl.chain.reproduce.papers import Papers
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
        cost = cost_of(step.name, papers, graph.chain.settings[step.name])
        if cost is not None:
            found[step.name] = cost
    return found


def cost_of(name: str, papers: Papers, settings: Mapping[str, object] | None = None) -> Cost | None:
    """Return the estimated cost of a step with its settings; None if ``plan`` lacks the step."""
    entry = papers.steps.get(name)
    if entry is None or not entry.plan or entry.job not in _PLANNED:
        return None
    plain = dict(settings or {"recipe": entry.recipe, **entry.set})
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
