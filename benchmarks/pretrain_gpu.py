"""Each paper's recipe on one GPU with random weights, by us and by stock open_clip; without Ray.

Both go through their own training loop, batches copied from the host included. Every way of
computing a step gets the largest batch that fits without computing anything twice: 1,024, halved
until it does; compiled, the batch of the same step without compiling. Utilisation counts the
operations of real tokens and kept patches, so that padding earns nothing.
"""

import contextlib
import gc
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from open_clip import ClipLoss
from pretrain_peers import Ours, Stock, batch_of, build, copied
from pretrain_report import Table, median
from torch import Tensor

from biovl.core import config as configs
from biovl.models.builders.open_clip import Built
from biovl.pretrain import config as pretrain_config
from biovl.pretrain import flops, hardware
from biovl.pretrain.compiling import CompileWatch
from biovl.pretrain.config import PretrainConfig, StepConfig
from biovl.pretrain.losses import info_nce
from biovl.runtime.workers import Workers

RECIPES = {
    "biomedclip": "A",
    "bmca_clip": "A",
    "bmc_longclip_77": "B",
    "bmc_longclip_154": "B",
    "bmc_longclip_512": "B",
}
"""And the law of their captions' lengths."""

GOALS = {"biomedclip": 2_500, "bmc_longclip_512": 785}
"""Pairs a second on an H200."""

TIMED_S = 1.5
"""Of a measurement; there are three, and the median counts."""


_BF16 = StepConfig(precision="bf16")
_COMPILED = replace(_BF16, compile=True)


@dataclass(frozen=True)
class Way:
    """A way to compute a step."""

    name: str
    precision: str = ""
    """Stock's, as its command line has it; empty is ours."""
    checkpointing: bool = False
    step: StepConfig = _BF16
    patch_dropout: float = 0.0
    whole_batch: bool = False
    """Takes the first batch whole, in micro-batches of what fits."""


WAYS = (
    Way("stock, bf16", precision="amp_bf16"),
    Way("stock, its defaults (fp16, scaler)", precision="amp"),
    Way("stock, TF32, checkpointing (as papers)", precision="fp32", checkpointing=True),
    Way("ours, padded", step=replace(_BF16, text="padded")),
    Way("ours, packed"),
    Way("ours, packed, compile", step=_COMPILED),
    Way("ours, packed, compile, in micro-batches", step=_COMPILED, whole_batch=True),
    Way("stock, bf16, patch dropout 0.5", precision="amp_bf16", patch_dropout=0.5),
    Way("ours, packed, patch dropout 0.5", patch_dropout=0.5),
    Way("ours, packed, compile, patch dropout 0.5", step=_COMPILED, patch_dropout=0.5),
)


DAY = (
    "stock, bf16",
    "ours, packed",
    "ours, packed, compile",
    "ours, packed, compile, in micro-batches",
)
"""The ways that ``gpu_day.py`` measures."""


@dataclass(frozen=True)
class _Measured:
    pairs: int
    seconds: float
    """Of a step, median."""
    spread: float
    """Largest over smallest of the measurements."""
    tokens: float
    """Of all captions of a step, no padding."""
    flops: float
    """Of a step."""
    peak_gib: float
    start_s: float
    """Of copying the model to the device and the first steps, with compilation."""
    fallbacks: tuple[str, ...]
    """What was not compiled, although it should have been, and why."""


def gpu(
    device: torch.device,
    *,
    names: list[str],
    ways: str | tuple[str, ...],
    batch: int,
    is_tiny: bool,
    loss: bool = True,
    keep: Callable[[dict[str, Any]], object] = lambda found: None,
) -> dict[str, Any]:
    """Print a table for each recipe and return its numbers.

    ``ways`` is a part of their names, or the names themselves. ``keep`` is called with what is
    known after each of them.
    """
    # As both training loops have it.
    torch.backends.cudnn.benchmark = True
    accelerator = hardware.detect(device)
    peak = None if accelerator is None else accelerator.peak_flops("bf16")
    found: dict[str, Any] = {}
    for name in names:
        chosen = [
            way for way in WAYS if (ways in way.name if isinstance(ways, str) else way.name in ways)
        ]
        for ways_of_recipe in _recipe(name, chosen, batch, device, peak, is_tiny=is_tiny):
            found[name] = ways_of_recipe
            keep(found)
    if loss:
        found["loss"] = _loss(device, 64 if is_tiny else 4_096)
    return found


def config_of(name: str) -> PretrainConfig:
    """Return the configuration of a recipe, for no corpus."""
    values = {**configs.recipe_settings(pretrain_config.RECIPES[name]()), "corpus": "", "out": ""}
    config: PretrainConfig = configs.build(PretrainConfig, values)
    return config


def settings_of(name: str, *, is_tiny: bool) -> Mapping[str, Any]:
    """Return the settings of a recipe's model; with ``is_tiny`` of one for a CPU."""
    settings: Mapping[str, Any] = config_of(name).model.settings
    return shrunk(settings) if is_tiny else settings


def _recipe(
    name: str,
    ways: list[Way],
    batch: int,
    device: torch.device,
    peak: float | None,
    *,
    is_tiny: bool,
) -> Iterator[dict[str, Any]]:
    """Yield the numbers of all ways so far, after each."""
    config, settings = config_of(name), settings_of(name, is_tiny=is_tiny)
    law = RECIPES.get(name, "A")
    goal = f"; goal {GOALS[name]:,} pairs/s on an H200" if name in GOALS else ""
    table = Table(
        f"{name}{' (tiny)' if is_tiny else ''}, captions of law {law}",
        ["", "pairs", "ms", "spread", "pairs/s", "tokens/s", "MFU", "GiB", "x stock", "start s"],
        f"pairs: in a step; MFU: of bf16's dense peak; x stock: pairs/s over stock's in bf16{goal}",
    )
    found: dict[str, Any] = {}
    fits: dict[StepConfig, int] = {}
    # To build a large model takes longer than to measure it.
    builts: dict[float, Built] = {}
    for way in ways:
        try:
            if way.patch_dropout not in builts:
                torch.manual_seed(0)
                builts[way.patch_dropout] = build({**settings, "patch_dropout": way.patch_dropout})
            measured = _largest(config, builts[way.patch_dropout], way, batch, fits, law, device)
        except Exception as error:  # one way that fails shall not cost the others their numbers
            traceback.print_exc()
            table.row(f"{way.name}: {type(error).__name__}, see above")
            found[way.name] = {"failed": repr(error)[:300]}
            yield found
            continue
        finally:
            _forget(device)
        if measured is None:
            continue
        rate = measured.pairs / measured.seconds
        used = measured.flops / measured.seconds
        stock = found.get("stock, bf16", {}).get("pairs_per_s")
        found[way.name] = {
            **vars(measured),
            "pairs_per_s": rate,
            "mfu": None if peak is None else used / peak,
            "tflops": used / 1e12,
        }
        table.row(
            way.name,
            str(measured.pairs),
            f"{measured.seconds * 1e3:.0f}",
            f"{measured.spread:.2f}",
            f"{rate:,.0f}",
            f"{measured.tokens / measured.seconds:,.0f}",
            "" if peak is None else f"{used / peak:.1%}",
            f"{measured.peak_gib:.1f}",
            "" if stock is None else f"{rate / stock:.2f}",
            f"{measured.start_s:.0f}",
        )
        yield found


def _largest(
    config: PretrainConfig,
    built: Built,
    way: Way,
    batch: int,
    fits: dict[StepConfig, int],
    law: str,
    device: torch.device,
) -> _Measured | None:
    """Return what a way does with the largest batch that fits; None where it has no use."""
    if way.whole_batch:
        micro = fits.get(way.step, batch)
        if micro == batch:
            return None
        way = replace(way, step=replace(way.step, micro_batch=micro))
    pairs = batch
    if way.step.compile and not way.whole_batch:
        # To compile for batches that do not fit takes minutes.
        pairs = fits.get(replace(way.step, compile=False), batch)
    while True:
        try:
            measured = _measure(config, built, way, pairs, law, device)
        except torch.OutOfMemoryError:
            if pairs < 2:
                raise
        else:
            if not way.precision:
                fits.setdefault(way.step, pairs)
            return measured
        # Not in the handler: there the error holds on to the memory.
        _forget(device)
        pairs //= 2


def _measure(
    config: PretrainConfig,
    built: Built,
    way: Way,
    pairs: int,
    law: str,
    device: torch.device,
) -> _Measured:
    started = time.monotonic()
    built = copied(built)
    cost = flops.forward_cost(built.model)
    batches = [batch_of(built, law, pairs, seed) for seed in range(3)]
    side: Ours | Stock
    if way.precision:
        torch.backends.cuda.matmul.fp32_precision = "tf32"  # as its main() does
        side = Stock(
            built,
            batches,
            config.optim,
            device,
            precision=way.precision,
            checkpointing=way.checkpointing,
        )
    else:
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        side = Ours(built, batches, config.optim, way.step, device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.closing(CompileWatch()) as watch:
        # Every batch once, as lengths differ; and once more, as compilers learn from the second.
        side.steps(2 * len(batches))
        fallbacks = tuple(watch.messages())
    start_s = time.monotonic() - started
    one = _seconds(lambda: side.steps(1), device)
    count = len(batches) * max(1, math.ceil(min(TIMED_S / one, 30) / len(batches)))
    times = [_seconds(lambda: side.steps(count), device) / count for _ in range(3)]
    return _Measured(
        pairs=pairs,
        seconds=median(times),
        spread=max(times) / min(times),
        tokens=sum(int(b.lengths_B.sum()) for b in batches) / len(batches),
        flops=sum(flops.training_flops(cost, b.lengths_B.numpy()) for b in batches) / len(batches),
        peak_gib=torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0,
        start_s=start_s,
        fallbacks=fallbacks,
    )


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    torch.cuda.synchronize(device)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    work()
    last.record()
    torch.cuda.synchronize(device)
    return float(first.elapsed_time(last)) / 1e3


def _forget(device: torch.device) -> None:
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def shrunk(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of the same kinds of tower at a size for a CPU."""
    small = dict(settings)
    if "timm_model_name" in settings.get("vision_cfg", {}):
        small["vision_cfg"] = {**settings["vision_cfg"], "timm_model_name": "test_vit"}
        small["image_size"] = 160
        small["text_transformer"] = {
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "intermediate_size": 96,
        }
        return small
    small.pop("architecture")
    return {
        **small,
        "embed_dim": 32,
        "vision_cfg": {"layers": 2, "width": 64, "head_width": 32, "patch_size": 16},
        "text_cfg": {"layers": 2, "width": 64, "heads": 2},
        "image_size": 64,
    }


# --- the loss of one worker of sixteen ------------------------------------------------------------


class _OneOfMany(Workers):
    """A worker among others that are not there: it does its own share of the work."""

    def sum(self, values: Tensor) -> Tensor:
        return values

    def max(self, values: Tensor) -> Tensor:
        return values


class _LocalClipLoss(ClipLoss):
    """open_clip's with ``--local-loss``, given what the others would send."""

    def __init__(self, all_images: Tensor, all_texts: Tensor, world_size: int) -> None:
        super().__init__(local_loss=True, rank=0, world_size=world_size)
        self._all = all_images, all_texts

    def get_logits(
        self, image_features: Tensor, text_features: Tensor, logit_scale: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        all_images, all_texts = self._all
        return (
            logit_scale * image_features @ all_texts.T,
            logit_scale * text_features @ all_images.T,
        )


def _loss(device: torch.device, own: int, count: int = 16, dim: int = 512) -> dict[str, Any]:
    """Measure the loss of one of many workers, without what they exchange."""
    total = own * count
    table = Table(
        f"Loss of one worker of {count}: {own:,} images, {total:,} texts, d={dim}",
        ["", "ms", "GiB"],
        "Forward and backward without communication. GiB: peak beyond the features.",
    )
    numbers = torch.Generator(device).manual_seed(0)
    images, texts = (
        torch.nn.functional.normalize(
            torch.randn(total, dim, device=device, generator=numbers), dim=-1
        )
        for _ in range(2)
    )
    scale = torch.tensor(1 / 0.07, device=device)
    worker = _OneOfMany(0, count)

    def ours(tile: int) -> None:
        info_nce(images[:own], texts, scale, workers=worker, tile=tile)

    def stock(precision: torch.dtype | None) -> None:
        leaves = [t.detach().requires_grad_() for t in (images, texts, scale)]
        loss = _LocalClipLoss(leaves[0], leaves[1], count)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision is not None):
            value = loss(leaves[0][:own], leaves[1][:own], leaves[2])
        value.backward()

    works: dict[str, Callable[[], None]] = {
        "open_clip, --local-loss --gather-with-grad, bf16": lambda: stock(torch.bfloat16),
        "open_clip, --local-loss --gather-with-grad, fp32": lambda: stock(None),
        **{f"ours, tile {tile}, fp32": (lambda t=tile: ours(t)) for tile in (1_024, 4_096)},
    }
    found: dict[str, Any] = {}
    for name, work in works.items():
        work()
        before = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
        seconds = median([_seconds(work, device) for _ in range(3)])
        gib = 0.0
        if device.type == "cuda":
            gib = (torch.cuda.max_memory_allocated(device) - before) / 2**30
        found[name] = {"s": seconds, "gib": gib}
        table.row(name, f"{seconds * 1e3:.1f}", f"{gib:.2f}")
    return found


def chosen(names: str) -> list[str]:
    """Return the recipes that a command line names."""
    wanted = names.split(",") if names else list(RECIPES)
    unknown = [name for name in wanted if name not in RECIPES]
    if unknown:
        sys.exit(f"no recipe {', '.join(unknown)}; choose from {', '.join(RECIPES)}")
    return wanted
