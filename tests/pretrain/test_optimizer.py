"""Optimizers of timm, and learning rates of towers and layers."""

from dataclasses import replace

import pytest
import timm
import torch
from open_clip.timm_model import TimmModel
from timm.optim import Lion

from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin
from biovl.pretrain.config import BatchConfig, OptimConfig, PretrainConfig
from biovl.pretrain.loop import Trainer, train
from biovl.pretrain.optimizer import LR_SCALE, decays, layer_scales, make_optimizer, state_bytes
from biovl.pretrain.schedule import Plan
from biovl.runtime.workers import Workers
from tests.pretrain.tiny_clip import pairs, tiny_model, towers_of

FIELD = ["timm/lion", "timm/adafactorbv", "timm/nadamw", "timm/muon", "timm/adopt", "timm/cadamw"]


def trainer(optim: OptimConfig) -> Trainer:
    model = tiny_model().train()
    config = PretrainConfig(
        corpus="", out="", model=Plugin("open_clip"), batch=BatchConfig(pairs=8), optim=optim
    )
    return Trainer(
        towers_of(model),
        model,
        config,
        Plan.of(64, config.batch, 1),
        device=torch.device("cpu"),
        workers=Workers(),
    )


def run(loop: Trainer, start: int, stop: int) -> list[float]:
    batches = (pairs(8, seed=number) for number in range(start, stop))
    return [report.loss for report in train(loop, batches)]


@pytest.mark.parametrize("name", FIELD)
def test_a_resumed_run_ends_in_the_same_bits(name: str) -> None:
    optim = OptimConfig(
        name=name, peak_lr=1e-3, warmup_steps=2, layer_decay=0.5, text_lr_factor=0.1
    )
    undisturbed, first, second = trainer(optim), trainer(optim), trainer(optim)
    run(undisturbed, 0, 8)
    run(first, 0, 3)
    second.load(first.state())
    run(second, 3, 8)
    start = tiny_model().state_dict()
    for part, value in undisturbed.state()["model"].items():
        assert torch.equal(value, second.state()["model"][part]), part
        assert not value.is_floating_point() or not torch.equal(value, start[part]), part


def test_lion_moves_each_weight_by_the_learning_rate_of_its_layer() -> None:
    optim = OptimConfig(
        name="timm/lion",
        settings={"betas": [0.8, 0.9]},
        peak_lr=1e-2,
        warmup_steps=0,
        schedule="constant",
        weight_decay=0.0,
        image_lr_factor=0.1,
        layer_decay=(0.5, 1.0),
    )
    loop, before = trainer(optim), dict(tiny_model().named_parameters())
    assert isinstance(loop._optimizer, Lion)
    assert loop._optimizer.defaults["betas"] == [0.8, 0.9]
    run(loop, 0, 1)
    after = loop.state()["model"]
    expected = {
        "visual.conv1.weight": 0.5 * 1e-3,
        "visual.transformer.resblocks.0.mlp.c_fc.weight": 1e-3,
        "visual.proj": 1e-3,
        "text.token_embedding.weight": 1e-2,
        "text.text_projection": 1e-2,
        "logit_scale": 1e-2,
    }
    for name, rate in expected.items():
        moved = (after[name] - before[name]).abs().max().item()
        assert moved == pytest.approx(rate, rel=1e-3), name


def test_towers_and_layers_multiply() -> None:
    optim = OptimConfig(image_lr_factor=0.1, text_lr_factor=2.0, layer_decay=(0.5, 1.0))
    scales = layer_scales(tiny_model(layers=3), optim)
    assert scales["visual.conv1.weight"] == 0.1 * 0.5**3
    assert scales["visual.transformer.resblocks.1.ln_1.weight"] == 0.1 * 0.5
    assert scales["visual.proj"] == 0.1
    assert scales["text.token_embedding.weight"] == scales["text.text_projection"] == 2.0
    assert scales["logit_scale"] == 1.0


def test_tokens_of_a_vision_transformer_are_in_front_of_its_blocks() -> None:
    model = tiny_model()
    model.visual = TimmModel("vit_tiny_patch16_224", embed_dim=6, pool="")
    model.visual.trunk = timm.create_model("vit_tiny_patch16_224", reg_tokens=4, num_classes=0)
    parameters = dict(model.named_parameters())
    scales = layer_scales(model, OptimConfig(layer_decay=(0.5, 1.0)))
    for name in ("visual.trunk.cls_token", "visual.trunk.reg_token"):
        assert scales[name] == scales["visual.trunk.patch_embed.proj.weight"] == 0.5**12
        optim = OptimConfig(decay_embeddings=False)
        assert not decays(name, parameters[name], optim)


def test_weight_decay_is_that_of_adamw_for_every_optimizer() -> None:
    def decay(name: str) -> list[tuple[float, float, int]]:
        optim = OptimConfig(name=name, layer_decay=0.5, weight_decay=0.3)
        groups = make_optimizer(tiny_model(), optim).param_groups
        return [(g["weight_decay"], g[LR_SCALE], len(g["params"])) for g in groups]

    assert {weight for weight, *_ in decay("adamw")} == {0.0, 0.3}
    assert all(decay(name) == decay("adamw") for name in FIELD)


def test_memory_of_the_state_is_counted() -> None:
    model = tiny_model()

    def count(name: str) -> float:
        return state_bytes(model, OptimConfig(name=name))

    assert count("adamw") == 8
    assert count("timm/lion") == 4
    # A counter of steps for each tensor as well.
    assert 8 < count("timm/nadamw") < 8.1
    # Its second moment is factored, its first one in bfloat16.
    assert 2 < count("timm/adafactorbv") < 4
    # Reads values in a step.
    assert count("timm/adamp") == 8
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "timm/lio"}, r"optim\.name.*timm/lio.*lion"),
        ({"name": "timm/kron"}, r"optim\.name"),
        ({"name": "timm/bnblion"}, r"optim\.name"),
        ({"name": "timm/lion", "settings": {"bets": [0.9, 0.99]}}, r"optim\.settings.*bets"),
        ({"name": "timm/lion", "settings": {"weight_decay": 1.0}}, r"optim\.settings.*decay"),
        ({"name": "timm/lion", "settings": {"betas": [0.9, 9.0]}}, r"optim\.settings"),
    ],
)
def test_an_unknown_optimizer_or_setting_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_optimizer(tiny_model(), replace(OptimConfig(), **wrong))  # type: ignore[arg-type]
