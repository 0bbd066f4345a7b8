"""Fine-tuning: a tower that is not trained, and early blocks with lower learning rates."""

from dataclasses import replace

import pytest
import torch
from open_clip.model import CustomTextCLIP
from torch import Tensor

from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin
from biovl.pretrain.config import BatchConfig, OptimConfig, PretrainConfig
from biovl.pretrain.flops import forward_cost
from biovl.pretrain.locking import lock
from biovl.pretrain.loop import Trainer, train
from biovl.pretrain.losses import LOSSES
from biovl.pretrain.optimizer import layer_scales, make_optimizer
from biovl.pretrain.schedule import Plan
from biovl.pretrain.step import gradients
from biovl.runtime.workers import Workers, share
from tests.pretrain.groups import in_group
from tests.pretrain.tiny_clip import gradients_of, info_of, pairs, piece, tiny_model, towers_of


def locked_gradients(
    locked: str, unlocked: int | None = None, *, micro_batch: int | None = None
) -> dict[str, Tensor]:
    """The gradients of this worker's share of nine pairs."""
    model = tiny_model().double().train()
    lock(model, OptimConfig(locked=locked, text_unlocked_layers=unlocked))
    workers = Workers.current()
    own = share(9, workers.rank, workers.count)
    towers = towers_of(model).distributed(workers)
    batch = piece(pairs(9), own.start, own.stop)
    gradients(towers, batch, 9, LOSSES["infonce"], workers=workers, micro_batch=micro_batch, tile=4)
    return gradients_of(model)


@pytest.mark.parametrize("locked", ["image", "text"])
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_the_other_tower_gets_the_gradient_that_it_has_without_a_lock(
    locked: str, micro_batch: int | None
) -> None:
    own = "visual." if locked == "text" else "text."
    expected = {
        name: grad
        for name, grad in locked_gradients("none").items()
        if name.startswith((own, "logit"))
    }
    actual = locked_gradients(locked, micro_batch=micro_batch)
    assert actual.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(actual[name], grad, atol=1e-13, rtol=1e-12, msg=name)


@pytest.mark.parametrize(("locked", "unlocked"), [("text", None), ("both", 2)])
def test_two_workers_with_locked_layers_have_the_gradient_of_one(
    locked: str, unlocked: int | None
) -> None:
    expected = locked_gradients(locked, unlocked)
    for actual in in_group(2, locked_gradients, locked, unlocked):
        assert actual.keys() == expected.keys()
        for name, grad in expected.items():
            torch.testing.assert_close(actual[name], grad, atol=1e-12, rtol=1e-11, msg=name)


def test_a_locked_tower_has_no_dropout() -> None:
    model = tiny_model(dropout=0.5).train()
    lock(model, OptimConfig(locked="text"))
    assert not any(module.training for module in model.text.modules())
    assert model.visual.training


def trained(optim: OptimConfig) -> tuple[CustomTextCLIP, CustomTextCLIP]:
    """A model before and after ten steps."""
    config = PretrainConfig(
        corpus="", out="", model=Plugin("open_clip"), epochs=1, batch=BatchConfig(pairs=8)
    )
    model = tiny_model().train()
    lock(model, optim)
    loop = Trainer(
        towers_of(model),
        model,
        replace(config, optim=optim),
        Plan.of(80, config.batch, 1),
        device=torch.device("cpu"),
        workers=Workers(),
    )
    list(train(loop, (pairs(8, seed=number) for number in range(10))))
    return tiny_model(), model


def test_training_leaves_the_locked_tower_as_it_was() -> None:
    before, after = trained(OptimConfig(peak_lr=1e-2, warmup_steps=0, locked="text"))
    for (name, old), new in zip(
        before.state_dict().items(), after.state_dict().values(), strict=True
    ):
        assert torch.equal(old, new) == name.startswith("text."), name


def test_adams_first_step_is_smaller_by_the_factor_of_the_layer() -> None:
    optim = OptimConfig(
        peak_lr=1e-2, warmup_steps=0, weight_decay=0, eps=1e-12, schedule="constant"
    )

    def moved(layer_decay: float) -> dict[str, float]:
        model = tiny_model().train()
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        own = replace(optim, layer_decay=layer_decay)
        loop = Trainer(
            towers_of(model),
            model,
            PretrainConfig(
                corpus="", out="", model=Plugin("open_clip"), batch=BatchConfig(pairs=8), optim=own
            ),
            Plan.of(8, BatchConfig(pairs=8), 1),
            device=torch.device("cpu"),
            workers=Workers(),
        )
        batch = pairs(8)
        loop.update(loop.compute(batch), batch.lengths_B)
        return {name: (p - before[name]).abs().max().item() for name, p in model.named_parameters()}

    full, low = moved(1.0), moved(0.25)
    expected = {
        "visual.conv1.weight": 0.25,
        "visual.positional_embedding": 0.25,
        "text.token_embedding.weight": 0.25,
        "visual.transformer.resblocks.0.mlp.c_fc.weight": 1.0,
        "visual.proj": 1.0,
        "text.text_projection": 1.0,
        "logit_scale": 1.0,
    }
    for name, factor in expected.items():
        assert low[name] == pytest.approx(factor * full[name], rel=1e-3), name


class Named(torch.nn.Module):
    """Parameters with given names."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names

    def named_parameters(self, *_: object, **__: object):  # type: ignore[override]
        return ((name, torch.nn.Parameter(torch.zeros(1))) for name in self.names)


def test_the_layers_of_each_familys_towers_are_recognised_by_their_names() -> None:
    factors = {
        "visual.trunk.cls_token": 1 / 8,
        "visual.trunk.patch_embed.proj.weight": 1 / 8,
        "visual.trunk.blocks.0.attn.qkv.weight": 1 / 4,
        "visual.trunk.blocks.2.attn.qkv.weight": 1,
        "visual.trunk.norm.weight": 1,
        "visual.head.proj.weight": 1,
        "text.transformer.embeddings.word_embeddings.weight": 1 / 4,
        "text.transformer.encoder.layer.0.attention.self.query.weight": 1 / 2,
        "text.transformer.encoder.layer.1.output.dense.weight": 1,
        "text.proj.0.weight": 1,
        "logit_scale": 1,
    }
    assert layer_scales(Named(*factors), OptimConfig(layer_decay=0.5)) == factors
    modern = {
        "text.transformer.embeddings.tok_embeddings.weight": 1 / 4,
        "text.transformer.layers.0.attn.Wqkv.weight": 1 / 2,
        "text.transformer.layers.1.mlp.Wi.weight": 1,
        "text.transformer.final_norm.weight": 1,
    }
    assert layer_scales(Named(*modern), OptimConfig(layer_decay=0.5)) == modern


def test_a_tower_without_blocks_is_refused() -> None:
    resnet = Named("visual.conv1.weight", "visual.layer1.0.conv1.weight", "logit_scale")
    assert set(layer_scales(resnet, OptimConfig()).values()) == {1.0}
    stages = Named("visual.trunk.stages.0.blocks.0.norm.weight", "visual.trunk.stages.1.blocks.0.x")
    for tower in (resnet, stages):
        with pytest.raises(ConfigError):
            layer_scales(tower, OptimConfig(layer_decay=0.9))


def test_without_a_decay_of_layers_there_are_two_groups() -> None:
    # As in checkpoints of earlier versions.
    assert len(make_optimizer(tiny_model(), OptimConfig()).param_groups) == 2


def test_a_locked_tower_is_counted_with_its_forward_pass_alone() -> None:
    model = tiny_model()
    whole, all_trained = forward_cost(model), info_of(model)
    lock(model, OptimConfig(locked="text"))
    some, one_trained = forward_cost(model), info_of(model)
    text = float(whole.text([5])[0])
    assert float(whole.training([5])[0]) == 3 * (whole.image + text)
    assert float(some.training([5])[0]) == 3 * whole.image + text
    assert one_trained.locked_parameters == all_trained.text_parameters
    kept = one_trained.activations("packed", False, False)
    assert kept.image == all_trained.activations("packed", False, False).image
    assert kept.text.each < 0.1 * all_trained.activations("packed", False, False).text.each


@pytest.mark.parametrize("wrong", [0.0, 1.5, -1.0])
def test_a_layer_decay_out_of_range_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="layer_decay"):
        OptimConfig(layer_decay=wrong)
