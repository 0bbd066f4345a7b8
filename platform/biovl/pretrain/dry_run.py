"""Text of an estimate for ``--dry-run``, at most 100 characters wide."""

import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import yaml

from biovl.core.markdown import plain_table
from biovl.pretrain import rates
from biovl.pretrain.estimate import Forecast, RunEstimate
from biovl.pretrain.flops import TRAINING_PER_FORWARD
from biovl.pretrain.rates import TrainingRate, training_rate

SMALL_PX = 288
"""Shorter side of images in the recipe ``training`` of assemble."""


def render(estimate: RunEstimate, corpora: Sequence[str] = (), fork: Sequence[str] = ()) -> str:
    """Return the estimate of a run as text for ``--dry-run``.

    Args:
        estimate: The estimate.
        corpora: Lines about each of several corpora.
        fork: Lines about the start of a fork.
    """
    lines = [
        "Configuration",
        *(f"  {line}" for line in _yaml(estimate.config).splitlines()),
        "",
        "Model",
        *_aligned(_model(estimate)),
        "",
        *_fork(fork),
        "Work (counted)",
        *_aligned(_work(estimate, corpora)),
        "",
        "Memory of a worker as configured (captions of mean length)",
        *_aligned(_memory(estimate)),
        "",
        "Time (an estimate; *: as configured)",
        *_on_cpus(estimate),
        *plain_table(
            [_HEADS, *(_row(estimate, forecast) for forecast in estimate.forecasts)],
            left={0, 1, 7},
        ),
        "",
        *(f"  {line}" for line in _sources(estimate)),
        "",
        f"Data ({estimate.pair_ms:.1f} ms of a CPU core to load a pair of this corpus, measured)",
        *plain_table(_data(estimate), left={0, 1, 5}),
        *([] if _is_on_cpus(estimate) else _advice(estimate)),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _fork(lines: Sequence[str]) -> list[str]:
    wrapped = [
        textwrap.fill(line, 98, initial_indent="  ", subsequent_indent="      ") for line in lines
    ]
    return ["Fork", *wrapped, ""] if lines else []


def _model(estimate: RunEstimate) -> Iterable[tuple[str, str]]:
    info = estimate.model
    text_flops = float(info.cost.text([info.context])[0])
    yield (
        "image tower",
        f"{_millions(info.image_parameters)} parameters, {info.image_size} px, "
        f"{_giga(info.cost.image)} forward",
    )
    yield (
        "text tower",
        f"{_millions(info.text_parameters)} parameters, {info.context} tokens, "
        f"{_giga(text_flops)} forward with a full context",
    )
    yield (
        "both",
        f"{_millions(info.parameters)} parameters, embeddings of {info.embed_dim}",
    )


def _work(estimate: RunEstimate, corpora: Sequence[str]) -> Iterable[tuple[str, str]]:
    for line in corpora:
        yield "", line
    what = "pairs of an epoch" if corpora else "pairs to train on"
    yield "corpora" if corpora else "corpus", f"{estimate.corpus_pairs:,} {what}"
    for (pairs, steps), epochs in itertools.groupby(estimate.plan.epochs):
        yield "epochs", f"{len(list(epochs)):,} of {steps:,} steps of {pairs:,} pairs"
    yield "run", f"{estimate.plan.steps:,} steps, {estimate.plan.pairs:,} pairs"
    if estimate.steps_done:
        left = estimate.plan.after(estimate.steps_done)
        yield "remaining", f"{left.steps:,} steps, {left.pairs:,} pairs: the times below"
    yield (
        "captions",
        f"{estimate.mean_tokens:.0f} tokens on average, {estimate.fill:.0%} of the context",
    )
    yield "a pair", f"{_giga(estimate.flops)} in training, by the lengths of the captions"
    yield "", f"{_giga(estimate.flops_padded)} with every caption padded to the context"
    if estimate.passes > TRAINING_PER_FORWARD:
        more = estimate.passes / TRAINING_PER_FORWARD - 1
        yield "recomputed", f"{more:.0%} more than that, to save memory"


def _memory(estimate: RunEstimate) -> Iterable[tuple[str, str]]:
    held = estimate.held
    yield (
        "pairs",
        f"{estimate.local_pairs:,} in the largest step, {estimate.micro_batch:,} at a time",
    )
    yield "weights", f"{_gb(held.weights):>9}  with gradients and the state of the optimizer"
    # The peak of so few pairs is the update of the weights.
    freed = "" if held.activations else "; freed before the update, which is the peak"
    yield "activations", f"{_gb(held.activations):>9}  traced in a step without data{freed}"
    yield "working", f"{_gb(held.working):>9}  of the backward pass"
    yield "loss", f"{_gb(held.loss):>9}"
    yield "pixels", f"{_gb(held.pixels):>9}"
    yield "reserve", f"{_gb(held.reserve):>9}"
    yield "sum", f"{_gb(held.total):>9}"


def _is_on_cpus(estimate: RunEstimate) -> bool:
    return not estimate.config["workers"]["gpus"]


def _on_cpus(estimate: RunEstimate) -> list[str]:
    if not _is_on_cpus(estimate):
        return []
    words = (
        "The run as configured is on CPUs (workers.gpus=0), whose time is not estimated; its log "
        "has pairs/s from the first step on. GPUs for comparison, which small models do not keep "
        "busy:"
    )
    return textwrap.wrap(words, 98, initial_indent="  ", subsequent_indent="  ")


_HEADS = ("GPUs", "", "pairs/s", "per GPU", "eager", "compiled", "memory", "step.micro_batch")


def _row(estimate: RunEstimate, each: Forecast) -> Sequence[str]:
    gpus, held = f"{each.workers} x {each.accelerator.name}", _gb(each.held.total)
    machine = each.accelerator.instance
    if each.micro_batch is None:
        return (gpus, machine, "", "", "", "", held, "does not fit, even with 1")
    local = math.ceil(max(size for size, _ in estimate.plan.epochs) / each.workers)
    as_configured = each.micro_batch == min(estimate.config["step"]["micro_batch"] or local, local)
    if as_configured:
        micro = "as configured"
    elif estimate.config["step"]["micro_batch"] is None:
        micro = f"{each.micro_batch}, chosen by the run"
    else:
        micro = f"does not fit; set {each.micro_batch}"
    if each.pairs_per_s is None:
        return (gpus, machine, "unknown", "", "", "", held, micro)
    return (
        gpus,
        machine,
        f"{each.pairs_per_s:,.0f}",
        f"{each.pairs_per_s / each.workers:,.0f}",
        _starred(each.hours_eager, not each.compiled),
        _starred(each.hours_compiled, each.compiled),
        held,
        micro,
    )


def _starred(hours: float | None, is_configured: bool) -> str:
    return "" if hours is None else _time(hours) + ("*" if is_configured else "")


def _sources(estimate: RunEstimate) -> Iterable[str]:
    own: dict[TrainingRate, list[str]] = {}
    for each in estimate.forecasts:
        rate = training_rate(each.accelerator.name, compiled=each.compiled)
        if rate is not None and each.accelerator.name not in own.setdefault(rate, []):
            own[rate].append(each.accelerator.name)
    for rate, names in own.items():
        mode = "compiled" if rate.compile else "eager"
        yield (
            f"{', '.join(names)} {mode}: {rate.share:.3g} of the peak, {rate.how}; by its range "
            f"{rate.share / rate.high:.2f} to {rate.share / rate.low:.2f} times as long."
        )
    yield "Sources: pretrain/rates.yaml. NVIDIA's NeMo reached 0.39 of the peak on A100."
    yield "cluster.yaml orders p4d for workers.accelerator=A100 and p5 for H100."


def _data(estimate: RunEstimate) -> Sequence[Sequence[str]]:
    rows: list[Sequence[str]] = [("GPUs", "", "pairs/s per GPU*", "vCPUs per GPU", "has", "")]
    for each, rate, needed, free in _vcpus_per_gpu(estimate):
        rows.append(
            (
                f"{each.workers} x {each.accelerator.name}",
                each.accelerator.instance,
                f"{rate:,.0f}",
                f"{needed:,.1f}",
                f"{free:,.0f}" if each.accelerator.vcpus else "",
                "too few: GPUs would wait" if each.accelerator.vcpus and needed > free else "",
            )
        )
    return rows


def _vcpus_per_gpu(estimate: RunEstimate) -> Iterator[tuple[Forecast, float, float, float]]:
    """Yield pairs per second of a GPU, vCPUs that load them, and those free on its node."""
    own = float(estimate.config["workers"]["cpus"])
    for each in estimate.forecasts:
        if each.pairs_per_s is not None:
            rate = each.pairs_per_s / each.workers
            needed = rates.vcpus(rate, estimate.pair_ms)
            yield each, rate, needed, max(0.0, each.accelerator.vcpus - own)


def _advice(estimate: RunEstimate) -> Iterable[str]:
    """Return what to do where a node cannot load the pairs that its GPUs train on."""
    missing = [
        (needed - free) * each.workers
        for each, _, needed, free in _vcpus_per_gpu(estimate)
        if each.accelerator.vcpus and needed > free
    ]
    if not missing:
        return
    yield ""
    small = rates.pair_ms(SMALL_PX)
    if estimate.pair_ms > small:
        yield (
            f"  biovl assemble training stores {SMALL_PX} px (image.short_side_px): "
            f"{small:.1f} ms instead of {estimate.pair_ms:.1f}."
        )
    yield (
        f"  Or add CPU nodes, up to {math.ceil(max(missing)):,} vCPUs in all: Ray loads pairs on "
        "any node (workers.data_cpus)."
    )


class _Compact(yaml.SafeDumper):  # type: ignore[misc]
    """YAML with short lists on one line."""


_Compact.add_representer(
    list,
    lambda dumper, values: dumper.represent_sequence(
        "tag:yaml.org,2002:seq",
        values,
        flow_style=not any(isinstance(value, dict | list) for value in values),
    ),
)


def _yaml(config: dict[str, Any]) -> str:
    dumped: str = yaml.dump(config, Dumper=_Compact, sort_keys=False, allow_unicode=True, width=94)
    return dumped


def _aligned(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"  {name:<13}{value}" for name, value in rows]


def _millions(count: int) -> str:
    return f"{count / 1e6:,.1f} M"


def _giga(flops: float) -> str:
    return f"{flops / 1e9:,.1f} GFLOP" if flops >= 1e9 else f"{flops / 1e6:,.1f} MFLOP"


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:,.1f} GB" if size_bytes >= 5e7 else f"{size_bytes / 1e6:,.1f} MB"


def _time(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:,.1f} days"
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{60 * hours:.0f} min" if hours >= 1 / 30 else f"{3600 * hours:.0f} s"
