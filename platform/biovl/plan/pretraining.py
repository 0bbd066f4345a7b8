"""Cost of pretraining on a corpus that does not exist yet, by the estimator of the pretrain job."""

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin
from biovl.plan.config import PretrainPlan
from biovl.pretrain import hardware
from biovl.pretrain.config import RECIPES, OptimConfig, PretrainConfig
from biovl.pretrain.estimate import Forecast, RunEstimate, compiled_as_configured, estimate
from biovl.pretrain.hardware import Accelerator
from biovl.pretrain.memory import ModelInfo, model_info
from biovl.pretrain.models import describe
from biovl.pretrain.run import most_checkpoints
from biovl.pretrain.schedule import Plan

_BATCHES = 4
"""Number of batches in the estimate; more make no difference, as captions are evenly spaced
quantiles."""


@dataclass(frozen=True, kw_only=True)
class TrainingCost:
    """Cost of a training run on a type and number of accelerators."""

    forecast: Forecast
    hours: float
    """Hours of computation only; infinite if not even one pair fits into memory."""

    flops_per_pair: float
    """FLOPs per pair, without padding and without recomputation of activations."""

    flops_per_pair_padded: float
    forward_flops: float
    """FLOPs of embedding one pair, without padding and patch dropout."""

    micro_batch: int | None
    """Pairs per forward pass of one GPU; None if not even one fits."""

    parameters: int
    embed_dim: int
    pairs: int
    """Number of pairs over all epochs."""
    checkpoints: int
    """Maximum number of checkpoints stored at a time."""


def training(
    plan: PretrainPlan,
    *,
    pairs: int,
    caption_tokens: float,
    accelerator: Accelerator,
    workers: int,
    utilisation: float,
) -> TrainingCost:
    """Return the cost of a training run.

    Args:
        plan: Recipe of pretrain and changed settings.
        pairs: Pairs per epoch.
        caption_tokens: Mean number of tokens per caption, without start and end tokens.
        accelerator: Accelerator of each worker.
        workers: Number of workers.
        utilisation: Fraction of the expected speed of the accelerator, 1 for all of it.

    Raises:
        ConfigError: If the recipe or a setting does not exist, or an epoch is smaller than a batch.
    """
    changes = json.dumps(plan.changes, sort_keys=True)
    config, info = _described(plan.recipe, changes)
    largest = _largest_batch(config)
    if largest > pairs:
        raise ConfigError(
            f"{plan.recipe} takes {largest:,} pairs a step, but an epoch has {pairs:,}: choose a "
            "smaller pretrain.changes.batch.pairs or a larger corpus"
        )
    estimated = _estimated(plan.recipe, changes, caption_tokens, accelerator, workers)
    (forecast,) = (each for each in estimated.forecasts if each.workers == workers)
    # Without the incomplete last batch of each epoch.
    run = Plan.of(pairs, config.batch, config.epochs)
    total_pairs = run.pairs
    # Estimated on a few batches; whether the run is compiled depends on all pairs.
    forecast = compiled_as_configured(config, forecast, estimated.plan.pairs, total_pairs)
    # Not a third of the training: a locked tower has no backward pass, and only training drops
    # patches.
    embeds = _info(_sections(config, patch_dropout=0.0)).cost
    texts_N = np.minimum(_captions(config, caption_tokens), info.context)
    speed = forecast.pairs_per_s
    if speed is not None:
        speed *= utilisation
    return TrainingCost(
        forecast=replace(forecast, pairs_per_s=speed, hours=None),
        hours=math.inf if speed is None else total_pairs / speed / 3600,
        flops_per_pair=estimated.flops,
        flops_per_pair_padded=estimated.flops_padded,
        forward_flops=embeds.image + float(embeds.text(texts_N).mean()),
        micro_batch=forecast.micro_batch,
        parameters=info.parameters,
        embed_dim=info.embed_dim,
        pairs=total_pairs,
        checkpoints=most_checkpoints(config, run),
    )


def lengths(mean: float, count: int) -> np.ndarray:
    """Return evenly spaced quantiles of caption lengths with a given mean, in tokens. Shape [N].

    Start and end tokens are added. The distribution is exponential: with BIOMEDICA's mean of 118
    tokens the interquartile range is 130 (134 in the paper). With BMC-LongCLIP's mean of 127 a
    context of 77 loses 55 % of the tokens (55 % in the paper), one of 512 2 % (2.2 %).
    """
    middles_N = (np.arange(count) + 0.5) / count
    return np.maximum(1, np.rint(-mean * np.log1p(-middles_N))).astype(np.int64) + 2


def accelerator_named(name: str) -> Accelerator:
    """Return an accelerator by its name in ``prices.yaml``."""
    known = {each.name: each for each in hardware.KNOWN}
    return known[name]


def cores(vcpus: int, gflops: float, memory_gib: float) -> Accelerator:
    """Return CPU cores as an accelerator that reaches its full peak."""
    tflops = vcpus * gflops / 1e3
    return Accelerator(f"{vcpus} vCPUs", None, tflops, memory_gib * 1.074, shares=(1.0, 1.0))


def _captions(config: PretrainConfig, mean: float) -> np.ndarray:
    """Return the lengths of the captions of the estimate, in tokens, not truncated. Shape [N]."""
    return lengths(mean, _BATCHES * _largest_batch(config))


def _largest_batch(config: PretrainConfig) -> int:
    return max(config.batch.of_epoch(epoch) for epoch in range(config.epochs))


# Cached: plans estimate the same run repeatedly, with other prices and rates.
@functools.lru_cache(64)
def _estimated(
    recipe: str, changes: str, caption_tokens: float, accelerator: Accelerator, workers: int
) -> RunEstimate:
    config, info = _described(recipe, changes)
    return estimate(
        configs.override(config, {"workers.count": workers}),
        info,
        _captions(config, caption_tokens),
        accelerators=[
            replace(
                accelerator,
                shares=(_share(accelerator, compiled=False), _share(accelerator, compiled=True)),
            )
        ],
    )


def _share(accelerator: Accelerator, *, compiled: bool) -> float:
    """Return the share of the peak in training; that of A100 where there is no rate."""
    share = accelerator.utilisation(compiled=compiled)
    if share is None:
        share = hardware.A100_80.utilisation(compiled=compiled)
    assert share is not None
    return share


@functools.lru_cache(16)
def _described(recipe: str, changes: str) -> tuple[PretrainConfig, ModelInfo]:
    if recipe not in RECIPES:
        raise ConfigError(f"pretrain.recipe: choose from {', '.join(RECIPES)}, got {recipe!r}")
    replaced = _by_dotted_name(json.loads(changes))
    built = configs.override(
        RECIPES[recipe](), {"corpus": "corpus", "out": "out", "mixture.factors": []}
    )
    config = configs.override(built, replaced)
    return config, _info(_sections(config))


def _sections(config: PretrainConfig, **changed: Any) -> str:
    """Return what determines a model's description, as JSON, with changed settings of the model."""
    plain = configs.to_plain(config)
    model = {**plain["model"], **changed}
    return json.dumps({"model": model, "optim": plain["optim"]}, sort_keys=True)


def _by_dotted_name(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes by dotted name: those of a command line are nested.

    A mapping that has a dotted name, or names a plug-in, replaces the recipe's, as in a run.
    """
    result: dict[str, Any] = {}
    for name, value in changes.items():
        is_whole = "." in name or (isinstance(value, Mapping) and "name" in value)
        result |= {name: value} if is_whole else configs.flat({name: value}, keep_empty=True)
    return result


@functools.lru_cache(16)
def _info(sections: str) -> ModelInfo:
    """Describe a model as the dry run of pretrain does: without what the optimizer locks."""
    plain = json.loads(sections)
    optim = configs.build(OptimConfig, plain["optim"])
    described = describe(configs.build(Plugin, plain["model"]), optim)
    return model_info(described, optim)
