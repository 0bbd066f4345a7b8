"""Our step against stock open_clip's on a CPU: CPU seconds of one thread, in turn, as ratios."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from pretrain_peers import Ours, Stock, batch_of, build, copied, difference
from pretrain_report import Table, in_turn, median, ratio

from biovl.models.towers import texts
from biovl.pretrain.config import OptimConfig, StepConfig

CHUNK_CAPTIONS = 4
"""Captions that ``chunked`` pads together here: batches are small, and have 4 to 6 chunks then, as
one of 256 to 384 has with the platform's own number."""

_SMALL_VIT = {"layers": 2, "width": 384, "head_width": 64, "patch_size": 16}

MODELS: dict[str, tuple[str, dict[str, Any], int, float]] = {
    "bert256": (
        "BiomedCLIP at half width and 2 of 12 layers (ViT 384/16 at 224 px, BERT 384), context 256",
        {
            "embed_dim": 256,
            "vision_cfg": _SMALL_VIT,
            "text_cfg": {
                "hf_model_name": "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract",
                "hf_proj_type": "mlp",
                "hf_pooler_type": "cls_last_hidden_state_pooler",
            },
            "text_transformer": {
                "hidden_size": 384,
                "num_hidden_layers": 2,
                "num_attention_heads": 6,
                "intermediate_size": 1_536,
            },
            "text_dropout": 0.0,
            "image_size": 224,
            "context_length": 256,
        },
        24,
        1.5,
    ),
    "modernbert512": (
        "Text-heavy (ViT 192/32 at 224 px, 2 layers; ModernBERT 384, 3 layers), context 512",
        {
            "embed_dim": 256,
            "vision_cfg": {"layers": 2, "width": 192, "head_width": 64, "patch_size": 32},
            "text_cfg": {
                "hf_model_name": "thomas-sounack/BioClinical-ModernBERT-base",
                "hf_proj_type": "mlp",
                "hf_pooler_type": "mean_pooler",
            },
            "text_transformer": {
                "hidden_size": 384,
                "num_hidden_layers": 3,
                "num_attention_heads": 6,
                "intermediate_size": 576,
            },
            "text_dropout": 0.0,
            "image_size": 224,
            "context_length": 512,
        },
        16,
        2.0,
    ),
    "clip77": (
        "CLIP B/16 at half width and 2 of 12 layers (ViT 384/16 at 224 px, text 256), context 77",
        {
            "embed_dim": 256,
            "vision_cfg": _SMALL_VIT,
            "text_cfg": {"layers": 2, "width": 256, "heads": 4},
            "image_size": 224,
            "context_length": 77,
        },
        24,
        1.0,
    ),
}
"""By name: what it is, its settings, pairs in a batch, and the goal for packed against stock."""


def step(quick: bool, rounds: int, laws: list[str]) -> dict[str, Any]:
    """Print a table and return its numbers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    table = Table(
        "Step: ours against stock open_clip 3.3.0, fp32 on one thread",
        [
            "",
            "law",
            "fill",
            "stock s",
            "ours s",
            "stock/ours",
            "range",
            "goal",
            "loss diff",
            "grad diff",
        ],
        "Stock: `train_one_epoch` with captions padded to the context. CPU seconds of a step, "
        f"median of {rounds} rounds in turn; the ratio is the median of the rounds' ratios.",
    )
    found: dict[str, Any] = {}
    for name, (title, settings, pairs, goal) in MODELS.items():
        pairs = 8 if quick else pairs
        table.row(f"**{name}**: {title}; {pairs} pairs")
        for law in laws:
            found[f"{name}/{law}"] = _measured(table, settings, pairs, law, rounds, goal)
    torch.set_num_threads(threads)
    return found


def _measured(
    table: Table, settings: dict[str, Any], pairs: int, law: str, rounds: int, goal: float
) -> dict[str, Any]:
    torch.manual_seed(0)
    built = build(settings)
    batches = [batch_of(built, law, pairs)]
    optim, device = OptimConfig(), torch.device("cpu")
    stock = Stock(copied(built), batches, optim, device)
    stock_loss, stock_gradient = stock.gradient()
    fill = int(batches[0].lengths_B.sum()) / (pairs * built.context_length)
    ways = ["padded", "packed"]
    if "hf_model_name" in settings["text_cfg"]:
        ways.append("chunked")
    ours: dict[str, Ours] = {}
    apart: dict[str, tuple[float, float]] = {}
    with _chunks_of(CHUNK_CAPTIONS):
        for way in ways:
            ours[way] = Ours(copied(built), batches, optim, StepConfig(text=way), device)
            loss, gradient = ours[way].gradient()
            apart[way] = abs(loss - stock_loss) / stock_loss, difference(gradient, stock_gradient)
        works = {"stock": stock, **ours}
        for side in works.values():
            side.steps(1)
        times = in_turn(
            {n: (lambda side=side: side.steps(1)) for n, side in works.items()},
            time.process_time,
            rounds,
        )
    result: dict[str, Any] = {"fill": fill, "stock_s": median(times["stock"])}
    for way in ways:
        low, middle, high = ratio(times["stock"], times[way])
        result[way] = {"s": median(times[way]), "ratio": middle, "range": [low, high]}
        result[way] |= dict(zip(("loss_diff", "gradient_diff"), apart[way], strict=True))
        aim = {"padded": ">= 1.0", "packed": f">= {goal}"}.get(way, "")
        table.row(
            f"- {way} / stock padded",
            law,
            f"{fill:.0%}",
            f"{median(times['stock']):.2f}",
            f"{median(times[way]):.2f}",
            f"{middle:.2f}",
            f"{low:.2f}-{high:.2f}",
            aim,
            f"{apart[way][0]:.0e}",
            f"{apart[way][1]:.0e}",
        )
    return result


@contextlib.contextmanager
def _chunks_of(captions: int) -> Iterator[None]:
    before = texts.CHUNK_CAPTIONS
    texts.CHUNK_CAPTIONS = captions
    try:
        yield
    finally:
        texts.CHUNK_CAPTIONS = before
