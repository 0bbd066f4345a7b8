"""What is locked is what open_clip locks, for each family of towers."""

import warnings

import pytest
import torch
from open_clip.hf_configs import arch_dict
from open_clip.model import CustomTextCLIP
from torch import nn

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin
from biovl.pretrain import models
from biovl.pretrain.config import OptimConfig
from biovl.pretrain.flops import forward_cost
from biovl.pretrain.locking import lock
from biovl.pretrain.losses import info_nce
from biovl.pretrain.step import gradients
from biovl.runtime.workers import Workers
from tests.pretrain.tiny_clip import CONTEXT, gradients_of, info_of, pairs, tiny_model, towers_of

BERT = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 49_408,
    "max_position_embeddings": 16,
}
MODERN = {
    "model_type": "modernbert",
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 49_408,
    "pad_token_id": 0,
}
IMAGES = {
    "open_clip": {"layers": 3, "width": 16, "head_width": 8, "patch_size": 8},
    "resnet": {"layers": [1, 1, 1, 1], "width": 8, "head_width": 8},
    "timm": {"timm_model_name": "vit_tiny_patch16_224", "timm_pool": "", "timm_proj": "linear"},
    "timm_resnet": {"timm_model_name": "resnet18", "timm_pool": "avg", "timm_proj": "linear"},
}
TEXTS = {
    "open_clip": {"text_cfg": {"layers": 3, "width": 16, "heads": 2}},
    "bert": {
        "text_cfg": {"hf_model_name": "bert", "hf_pooler_type": "mean_pooler"},
        "text_transformer": BERT,
    },
    "modernbert": {
        "text_cfg": {"hf_model_name": "modern", "hf_pooler_type": "mean_pooler"},
        "text_transformer": MODERN,
    },
}


def model_of(image: str = "open_clip", text: str = "open_clip") -> CustomTextCLIP:
    settings = {
        "embed_dim": 8,
        "image_size": 224 if image == "timm" else 64,
        "context_length": CONTEXT,
        "vision_cfg": IMAGES[image],
        **TEXTS[text],
    }
    # Without data.
    return models.describe(Plugin("open_clip", settings)).model.train()


def trained(module: nn.Module) -> set[str]:
    return {name for name, p in module.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("image", ["open_clip", "timm", "timm_resnet"])
@pytest.mark.parametrize("groups", [0, 1, 2, 3])
def test_an_image_tower_is_locked_as_by_open_clip(image: str, groups: int) -> None:
    ours, theirs = model_of(image), model_of(image).to_empty(device="cpu")
    lock(ours, OptimConfig(locked="image", image_unlocked_groups=groups))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.lock_image_tower(unlocked_groups=groups, freeze_bn_stats=True)
    # FrozenBatchNorm2d has buffers for the weights that are not trained.
    assert trained(ours) == trained(theirs)
    assert trained(ours.text) == {name for name, _ in ours.text.named_parameters()}
    assert groups == 0 or trained(ours.visual)
    frozen = {
        name for name, part in theirs.named_modules() if type(part).__name__ == "FrozenBatchNorm2d"
    }
    still = {
        name
        for name, part in ours.named_modules()
        if isinstance(part, nn.BatchNorm2d) and not part.training
    }
    assert still == frozen
    assert bool(frozen) == (image == "timm_resnet")


@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("text", ["open_clip", "bert"])
@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_a_text_tower_is_locked_as_by_open_clip(
    text: str, layers: int, norms: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # open_clip 3.3 has these names for RoBERTa alone, and fails for BERT.
    names = ("layer_attr", "token_embeddings_attr")
    for name in names:
        known = arch_dict["roberta"]["config_names"][name]
        monkeypatch.setitem(arch_dict["bert"]["config_names"], name, known)
    ours, theirs = model_of(text=text), model_of(text=text)
    optim = OptimConfig(locked="text", text_unlocked_layers=layers, lock_layer_norm=norms)
    if text == "open_clip" and not norms:
        with pytest.raises(ConfigError, match="lock_layer_norm"):
            lock(ours, optim)
        return
    lock(ours, optim)
    theirs.lock_text_tower(unlocked_layers=layers, freeze_layer_norm=norms)
    assert trained(ours) == trained(theirs)
    assert trained(ours.visual) == {name for name, _ in ours.visual.named_parameters()}


def test_modernbert_is_locked_like_bert() -> None:
    model = model_of(text="modernbert")
    lock(model, OptimConfig(locked="text", text_unlocked_layers=1))
    assert {name.split(".")[1] for name in trained(model.text) if "layers" in name} == {"layers"}
    assert all("layers.2." in name for name in trained(model.text) if ".layers." in name)
    assert not any("embeddings" in name for name in trained(model.text))
    assert any("proj" in name for name in trained(model.text))


def test_locked_layers_have_no_dropout_and_the_others_do() -> None:
    model = model_of(text="bert")
    lock(model, OptimConfig(locked="text", text_unlocked_layers=1))
    layers = model.text.transformer.encoder.layer
    modes = [{part.training for part in layer.modules()} for layer in layers]
    assert modes == [{False}, {False}, {True}]
    assert not model.text.transformer.embeddings.dropout.training


def test_what_cannot_be_locked_in_part_is_refused() -> None:
    with pytest.raises(ConfigError, match="image_unlocked_groups"):
        lock(model_of("resnet"), OptimConfig(locked="image", image_unlocked_groups=1))
    for optim in (
        OptimConfig(locked="image", image_unlocked_groups=99),
        OptimConfig(locked="text", text_unlocked_layers=99),
    ):
        with pytest.raises(ConfigError, match="unlocked"):
            lock(model_of(), optim)


@pytest.mark.parametrize(
    "wrong",
    [
        {"image_unlocked_groups": 1},
        {"locked": "image", "text_unlocked_layers": 1},
        {"locked": "image", "image_unlocked_groups": -1},
        {"locked": "both"},
        {"locked": "text", "lock_layer_norm": False},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"locked|unlocked|lock_layer_norm"):
        configs.build(OptimConfig, wrong)


def gradients_with(optim: OptimConfig) -> dict[str, torch.Tensor]:
    model = tiny_model(layers=3).double().train()
    lock(model, optim)
    gradients(towers_of(model), pairs(9), 9, info_nce, workers=Workers(), micro_batch=2, tile=4)
    return gradients_of(model)


def test_unlocked_layers_get_the_gradient_that_they_have_without_a_lock() -> None:
    whole = gradients_with(OptimConfig())
    some = gradients_with(
        OptimConfig(locked="both", image_unlocked_groups=2, text_unlocked_layers=3)
    )
    blocks = {
        name.split(".resblocks.")[0] + name.split(".resblocks.")[1][0]
        for name in some
        if "resblocks" in name
    }
    assert blocks == {"visual.transformer2", "text.transformer1", "text.transformer2"}
    for name, grad in some.items():
        torch.testing.assert_close(grad, whole[name], atol=1e-13, rtol=1e-12, msg=name)


def test_a_tower_locked_in_part_costs_less() -> None:
    model = tiny_model(layers=3)
    whole, before = forward_cost(model), info_of(model)
    lock(model, OptimConfig(locked="image", image_unlocked_groups=2))
    some, after = forward_cost(model), info_of(model)
    assert 1 < some.image_passes < 2 < whole.image_passes == 3
    assert some.text_passes == 3
    assert 0 < after.locked_parameters < before.image_parameters
    image = after.activations("packed", False, False).image
    # One of three blocks.
    assert image.each < 0.5 * before.activations("packed", False, False).image.each
