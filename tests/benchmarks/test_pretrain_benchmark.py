"""What the benchmark of pretraining compares is comparable, and its part for GPUs runs."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

# Last: benchmarks/serve.py must not hide the package serve.
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import pretrain_gpu
import pretrain_peers
import pretrain_report

from biovl.models.towers import ImageTower
from biovl.pretrain.config import OptimConfig, StepConfig

CPU = torch.device("cpu")

TINY_TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 50_368,
}


def tiny(hub_name: str, pooler: str) -> dict:
    return {
        "embed_dim": 16,
        "vision_cfg": {"layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
        "text_cfg": {"hf_model_name": hub_name, "hf_proj_type": "mlp", "hf_pooler_type": pooler},
        "text_transformer": TINY_TEXT,
        "text_dropout": 0.0,
        "image_size": 16,
        "context_length": 96,
    }


@pytest.mark.parametrize(("name", "median", "ninetieth"), [("A", 64, 256), ("B", 85, 299)])
def test_captions_are_as_long_as_the_papers_say(name, median, ninetieth):
    drawn = pretrain_peers.lengths(name, 10_000, context=10**6)
    assert np.median(drawn) == pytest.approx(median, abs=1)
    assert np.quantile(drawn, 0.9) == pytest.approx(ninetieth, abs=1)


def test_law_b_loses_what_longclip_says_it_loses():
    drawn = pretrain_peers.lengths("B", 10_000, context=10**6)
    lost = [1 - np.minimum(drawn, context).sum() / drawn.sum() for context in (77, 512)]
    assert drawn.mean() == pytest.approx(127, abs=2)
    assert lost == pytest.approx([0.55, 0.022], abs=0.02)


@pytest.mark.parametrize("text", ["padded", "packed", "chunked"])
@pytest.mark.parametrize(
    ("hub_name", "pooler"),
    [
        (
            "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract",
            "cls_last_hidden_state_pooler",
        ),
        ("thomas-sounack/BioClinical-ModernBERT-base", "mean_pooler"),
    ],
)
def test_both_sides_have_the_same_loss_and_gradient(hub_name, pooler, text):
    torch.manual_seed(0)
    built = pretrain_peers.build(tiny(hub_name, pooler))
    batches = [pretrain_peers.batch_of(built, "A", 6)]
    optim = OptimConfig()
    stock = pretrain_peers.Stock(pretrain_peers.copied(built), batches, optim, CPU)
    ours = pretrain_peers.Ours(
        pretrain_peers.copied(built), batches, optim, StepConfig(text=text), CPU
    )
    their_loss, theirs = stock.gradient()
    our_loss, mine = ours.gradient()
    assert our_loss == pytest.approx(their_loss, rel=1e-6)
    assert pretrain_peers.difference(mine, theirs) < 1e-3


def test_both_sides_take_the_same_steps():
    built = pretrain_peers.build(tiny("thomas-sounack/BioClinical-ModernBERT-base", "mean_pooler"))
    batches = [pretrain_peers.batch_of(built, "A", 6, seed) for seed in range(2)]
    optim = OptimConfig(warmup_steps=1, peak_lr=1e-3)
    stock, ours = pretrain_peers.copied(built), pretrain_peers.copied(built)
    pretrain_peers.Stock(stock, batches, optim, CPU).steps(4)
    pretrain_peers.Ours(ours, batches, optim, StepConfig(), CPU).steps(4)
    before = dict(built.model.named_parameters())
    after = dict(ours.model.named_parameters())
    moved = {n: (after[n] - p).norm() for n, p in before.items()}
    apart = {n: (after[n] - p).norm() for n, p in stock.model.named_parameters()}
    assert sum(apart.values()) < 0.02 * sum(moved.values())


def test_a_batch_that_does_not_fit_is_halved_and_goes_whole_in_micro_batches(monkeypatch):
    measure, forward, tried, kept = pretrain_gpu._measure, ImageTower.forward, [], []

    def noted(config, settings, way, pairs, law, device):
        tried.append((way.name, pairs, way.step.micro_batch))
        return measure(config, settings, way, pairs, law, device)

    def limited(tower, pixels):
        if len(pixels) > 2:
            raise torch.OutOfMemoryError
        return forward(tower, pixels)

    uncompiled = replace(pretrain_gpu._BF16, text="padded")
    ways = [
        replace(way, step=uncompiled) if "compile" in way.name else way
        for way in pretrain_gpu.WAYS
        if way.name in ("ours, packed, compile", "ours, packed, compile, in micro-batches")
    ]
    monkeypatch.setattr(pretrain_gpu, "_measure", noted)
    monkeypatch.setattr(ImageTower, "forward", limited)
    monkeypatch.setattr(pretrain_gpu, "WAYS", ways)
    monkeypatch.setattr(pretrain_gpu, "TIMED_S", 0.01)
    found = pretrain_gpu.gpu(
        CPU,
        names=["bmca_clip"],
        ways="",
        batch=8,
        is_tiny=True,
        keep=lambda so_far: kept.append(list(so_far["bmca_clip"])),
    )
    one, two = (way.name for way in ways)
    assert tried == [(one, 8, None), (one, 4, None), (one, 2, None), (two, 8, 2)]
    assert {way: row["pairs"] for way, row in found["bmca_clip"].items()} == {one: 2, two: 8}
    assert kept[:2] == [[one], [one, two]]
    # Work that is done twice is not counted twice.
    per_pair = [row["flops"] / row["pairs"] for row in found["bmca_clip"].values()]
    assert per_pair[0] == pytest.approx(per_pair[1], rel=0.2)


def test_ratios_are_of_rounds():
    # Twice as slow in the second round, both: the ratio does not feel it.
    assert pretrain_report.ratio([2.0, 4.0, 3.0], [1.0, 2.0, 1.0]) == (2.0, 2.0, 3.0)
