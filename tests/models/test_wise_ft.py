"""Interpolated weights: exact at the ends, by hand between them, refused where models differ."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from biovl.core import config
from biovl.core.errors import ArtifactError, ConfigError
from biovl.finetune.merge_config import MergeConfig
from biovl.models import encoder
from biovl.models.builders import open_clip
from biovl.models.wise_ft import check_same_architecture, interpolate, read_model

VISION = {"layers": 1, "width": 32, "head_width": 16, "patch_size": 16, "image_size": 32}
TEXT = {"width": 32, "heads": 2, "layers": 1, "context_length": 16}


def built(seed=0, vision=VISION, text=TEXT, **changes):
    torch.manual_seed(seed)
    settings = {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text, **changes}
    return open_clip.build(config.build(open_clip.Config, settings))


def random_state(seed, dtype=torch.float32):
    numbers = torch.Generator().manual_seed(seed)
    state = {f"w{n}": torch.randn(50, 40, generator=numbers).to(dtype) for n in range(3)}
    return state | {"logit_scale": torch.tensor(2.0 + seed), "ids": torch.arange(4)}


def test_between_two_models_each_weight_is_on_the_line_between_its_ends() -> None:
    base = {"w": torch.tensor([0.0, 4.0]), "logit_scale": torch.tensor(2.0)}
    tuned = {"w": torch.tensor([8.0, 0.0]), "logit_scale": torch.tensor(4.0)}
    merged = interpolate(base, tuned, 0.25)
    assert merged["w"].tolist() == [2.0, 3.0]
    assert merged["logit_scale"].item() == 2.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_ends_are_exactly_the_models(dtype: torch.dtype) -> None:
    base, tuned = random_state(1, dtype), random_state(2, dtype)
    for alpha, model in ((0, base), (1, tuned)):
        merged = interpolate(base, tuned, alpha)
        assert all(torch.equal(merged[name], tensor) for name, tensor in model.items())
        assert all(merged[name].dtype == tensor.dtype for name, tensor in model.items())


@pytest.mark.parametrize("alpha", [0.1, 1 / 3, 0.7])
def test_weights_that_were_not_tuned_stay_what_they_are(alpha: float) -> None:
    state = random_state(1)
    merged = interpolate(state, {name: t.clone() for name, t in state.items()}, alpha)
    assert all(torch.equal(merged[name], tensor) for name, tensor in state.items())


def test_halves_are_rounded_once() -> None:
    base = torch.tensor([1.0, 2.0, -3.0]).half()
    tuned = torch.tensor([1.001, 5.0, 7.0]).half()
    merged = interpolate({"w": base}, {"w": tuned}, 0.3)["w"]
    assert merged.dtype == torch.float16
    assert torch.equal(merged, (0.7 * base.double() + 0.3 * tuned.double()).half())


def test_of_two_precisions_the_wider_is_kept() -> None:
    merged = interpolate({"w": torch.ones(2).half()}, {"w": torch.full((2,), 1.0001)}, 0.5)["w"]
    assert merged.dtype == torch.float32
    assert merged.tolist() == pytest.approx([1.00005] * 2, abs=1e-7)


@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_the_bias_of_a_model_that_was_tuned_with_siglip_stays(alpha: float) -> None:
    tuned = random_state(2) | {"logit_bias": torch.tensor(-9.5)}
    assert interpolate(random_state(1), tuned, alpha)["logit_bias"] == -9.5


def test_what_comes_back_is_no_view_of_what_was_given() -> None:
    base, tuned = random_state(1), random_state(2)
    interpolate(base, tuned, 0)["w0"].zero_()
    interpolate(base, tuned, 1)["ids"].zero_()
    assert base["w0"].any()
    assert tuned["ids"].any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": torch.ones(1)}, "extra: .*tuned"),
        ({"w0": None}, "w0: .*base"),
        ({"w1": torch.ones(50, 41)}, r"w1: \[50, 40\] in base, \[50, 41\] in tuned"),
        ({"ids": torch.tensor([0, 1, 2, 4])}, "ids: .*integers"),
        ({"ids": torch.ones(4)}, "ids: torch.int64 in base, torch.float32 in tuned"),
    ],
)
@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_states_of_two_models_are_refused_with_the_tensor_named(changes, message, alpha) -> None:
    tuned = {name: t for name, t in (random_state(2) | changes).items() if t is not None}
    with pytest.raises(ArtifactError, match=message):
        interpolate(random_state(1), tuned, alpha)


def test_how_often_batch_norm_was_updated_is_no_difference() -> None:
    base = {"bn.num_batches_tracked": torch.tensor(10)}
    tuned = {"bn.num_batches_tracked": torch.tensor(20)}
    assert interpolate(base, tuned, 0.5)["bn.num_batches_tracked"] == 20


@pytest.mark.parametrize("alpha", [-0.1, 1.5, float("nan")])
def test_alpha_is_a_share(alpha: float) -> None:
    with pytest.raises(ValueError, match=rf"alpha .*\[0, 1\].*{alpha}"):
        interpolate({}, {}, alpha)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "alpha.*alphas.*corpus"),
        ({"alpha": "2"}, r"alpha: .*equal to 1 \(got .2"),
        ({"alphas": [0, 1.5], "corpus": "c"}, r"alphas\.1: .*equal to 1 \(got 1\.5"),
        ({"alphas": [0, 1]}, "alphas .*corpus"),
    ],
)
def test_a_configuration_that_says_too_little_is_refused(settings, message) -> None:
    with pytest.raises(ConfigError, match=message):
        config.build(MergeConfig, {"base": "b", "tuned": "t", "out": "o", **settings})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"vision": {**VISION, "head_width": 8}}, "vision_cfg.head_width: 16 -> 8"),
        ({"vision": {**VISION, "layers": 2}}, "vision_cfg.layers: 1 -> 2"),
        ({"text": {**TEXT, "heads": 4}}, "text_cfg.heads: 2 -> 4"),
        ({"quick_gelu": True}, "quick_gelu: False -> True"),
        ({"image_mean": [0.5, 0.5, 0.5]}, r"image\.mean"),
    ],
)
def test_models_of_two_architectures_are_refused_with_the_field_named(changes, field) -> None:
    with pytest.raises(ArtifactError, match=field):
        check_same_architecture(built(), built(**changes))


@pytest.mark.parametrize(
    ("name", "value"), [("interpolation", "bilinear"), ("resize_mode", "squash")]
)
def test_models_that_see_other_pixels_are_refused(name, value) -> None:
    tuned = replace(built(), preprocess={name: value})
    with pytest.raises(ArtifactError, match=rf"image\.{name}: \S+ -> \S*{value}"):
        check_same_architecture(built(), tuned)
    usual = {"interpolation": "bicubic", "resize_mode": "shortest"}
    check_same_architecture(built(), replace(built(), preprocess=usual))


def test_what_a_run_chose_is_no_difference_of_architecture() -> None:
    check_same_architecture(built(), built(patch_dropout=0.5, init_logit_scale=4.0))


def test_weights_that_lack_a_single_tensor_are_refused(tmp_path) -> None:
    model = built(vision={**VISION, "layers": 8})
    encoder.save(tmp_path / "model", model, model.model.state_dict())
    state = load_file(tmp_path / "model" / encoder.WEIGHTS)
    assert len(state) > 100
    (tmp_path / "other").mkdir()
    whole = tmp_path / "other" / "whole.safetensors"
    save_file(state, whole)
    read = read_model(tmp_path / "model", whole).model.state_dict()
    assert all(torch.equal(read[name], tensor) for name, tensor in state.items())
    del state["visual.ln_post.bias"]
    save_file(state, tmp_path / "other" / "lacking.safetensors")
    with pytest.raises(ArtifactError, match=r"visual\.ln_post\.bias"):
        read_model(tmp_path / "model", tmp_path / "other" / "lacking.safetensors")


def bert(folder, words):
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    shape = {"model_type": "bert", "vocab_size": len(vocabulary), "hidden_size": 32}
    shape |= {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    (folder / "config.json").write_text(json.dumps(shape))
    text = {"hf_model_name": str(folder), "hf_pooler_type": "cls_last_hidden_state_pooler"}
    return {"text": text, "tokenizer": str(folder), "context_length": 20}


def test_the_same_ids_must_mean_the_same_words(tmp_path) -> None:
    ours = built(**bert(tmp_path / "ours", ["chest", "view", "radiograph"]))
    check_same_architecture(
        ours, built(1, **bert(tmp_path / "moved", ["chest", "view", "radiograph"]))
    )
    others = built(**bert(tmp_path / "others", ["view", "chest", "radiograph"]))
    with pytest.raises(ArtifactError, match=r"tokenizer: "):
        check_same_architecture(ours, others)


def test_heads_of_a_transformers_tower_are_compared(tmp_path) -> None:
    tower = bert(tmp_path / "bert", ["chest"])
    changed = {**tower, "text_transformer": {"num_attention_heads": 4}}
    with pytest.raises(ArtifactError, match=r"text_transformer\.num_attention_heads: 2 -> 4"):
        check_same_architecture(built(**tower), built(**changed))
