"""The module between the towers is METER's, and learns what an image and a question decide."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

from biovl.benchmark.datasets.vqa import Config, build
from biovl.benchmark.fusion.config import AdamConfig, FusionConfig, LearningConfig
from biovl.benchmark.fusion.inputs import Inputs
from biovl.benchmark.fusion.learning import Learner
from biovl.benchmark.fusion.module import Fusion
from biovl.benchmark.fusion.tokens import TokenTowers
from biovl.core.errors import ConfigError
from biovl.images.decode import TOO_SMALL
from biovl.runtime.workers import Workers
from tests.benchmark.toy_questions import TEXT, tiny_encoder, write_vqa_rad
from tests.models.test_encoder import bert_folder

CPU = torch.device("cpu")
SMALL = FusionConfig(layers=1, width=32, heads=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return build(Config(path=str(write_vqa_rad(tmp_path_factory.mktemp("toy") / "rad"))))


def learner(data, *, encoder=None, **changes):
    config = LearningConfig(
        **{
            **{"towers": "frozen", "epochs": 12, "batch": 8, "fusion": SMALL},
            **{"adam": AdamConfig(lr=1e-3, fusion_times=2, head_times=5)},
            **changes,
        }
    )
    return Learner(encoder or tiny_encoder(), data, config, device=CPU, group=Workers())


def assert_same_inputs(one, other, numbers):
    (image, text, padding), (image_2, text_2, padding_2) = one(numbers), other(numbers)
    assert torch.equal(padding, padding_2)
    torch.testing.assert_close(image, image_2, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(text[~padding], text_2[~padding], rtol=2e-3, atol=2e-3)


def right(model, data, split="test"):
    numbers = np.flatnonzero(data.splits == split)
    index, _ = model.predict(numbers)
    said = [model.answers[number] for number in index]
    return np.mean([a == data.answers[n].lower() for a, n in zip(said, numbers, strict=True)])


def bert_layer(layer, config):
    """A layer of BERT with cross-attention, with the weights of ours."""
    bert = BertLayer(
        BertConfig(
            hidden_size=config.width,
            num_attention_heads=config.heads,
            intermediate_size=config.width * config.mlp_ratio,
            is_decoder=True,
            add_cross_attention=True,
            attn_implementation="eager",
        )
    ).eval()
    for theirs, ours, norm in (
        (bert.attention, layer.self_attn, layer.norm1),
        (bert.crossattention, layer.multihead_attn, layer.norm2),
    ):
        weights, biases = ours.in_proj_weight.chunk(3), ours.in_proj_bias.chunk(3)
        for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            getattr(theirs.self, name).weight.data = weight.data
            getattr(theirs.self, name).bias.data = bias.data
        theirs.output.dense.load_state_dict(ours.out_proj.state_dict())
        theirs.output.LayerNorm.load_state_dict(norm.state_dict())
    bert.intermediate.dense.load_state_dict(layer.linear1.state_dict())
    bert.output.dense.load_state_dict(layer.linear2.state_dict())
    bert.output.LayerNorm.load_state_dict(layer.norm3.state_dict())
    return bert


def test_both_streams_read_what_the_layer_before_left_as_berts_layers_do():
    config = FusionConfig(layers=2, width=16, heads=2, dropout=0.3)
    fusion = Fusion(config, image_width=6, text_width=5, answers=3).eval()
    for parameter in fusion.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    image_BPI, text_BLT = torch.randn(2, 4, 6), torch.randn(2, 3, 5)
    padding_BL = torch.tensor([[False, False, True], [False, False, False]])
    with torch.no_grad():
        text = fusion.from_text(text_BLT) + fusion.token_types.weight[0]
        image = fusion.from_image(image_BPI) + fusion.token_types.weight[1]
        mask = torch.where(padding_BL, -1e9, 0.0)[:, None, None]
        seen = torch.zeros(2, 1, 1, 4)
        for of_text, of_image in zip(fusion.text_layers, fusion.image_layers, strict=True):
            before = text, image
            text = bert_layer(of_text, config)(
                before[0], mask, encoder_hidden_states=before[1], encoder_attention_mask=seen
            )
            image = bert_layer(of_image, config)(
                before[1], seen, encoder_hidden_states=before[0], encoder_attention_mask=mask
            )
            text, image = (x[0] if isinstance(x, tuple) else x for x in (text, image))
        both = torch.cat(
            [fusion.text_pooler(text[:, 0]).tanh(), fusion.image_pooler(image[:, 0]).tanh()], 1
        )
        expected = fusion.head(both)
        torch.testing.assert_close(fusion(image_BPI, text_BLT, padding_BL), expected)


def test_the_size_of_meters_module_is_that_of_its_twelve_layers():
    with torch.device("meta"):
        fusion = Fusion(FusionConfig(), image_width=768, text_width=768, answers=3129)
    width = 768
    attention, feed_forward = 4 * (width**2 + width), 8 * width**2 + 5 * width
    layers = 12 * (2 * attention + feed_forward + 3 * 2 * width)
    linear = 4 * (width**2 + width)
    head = (2 * width) ** 2 + 3 * 2 * width + 2 * width * 3129 + 3129
    assert sum(p.numel() for p in fusion.parameters()) == layers + linear + 2 * width + head


def test_padding_changes_no_answer():
    fusion = Fusion(SMALL, image_width=6, text_width=5, answers=3).eval()
    image_BPI, text_BLT = torch.randn(1, 4, 6), torch.randn(1, 3, 5)
    longer = torch.cat([text_BLT, torch.randn(1, 2, 5)], 1)
    with torch.no_grad():
        torch.testing.assert_close(
            fusion(image_BPI, longer, torch.tensor([[False] * 3 + [True] * 2])),
            fusion(image_BPI, text_BLT, torch.zeros(1, 3, dtype=torch.bool)),
        )


@pytest.mark.parametrize("towers", ["frozen", "tuned"])
def test_answers_that_image_and_question_decide_are_learnt(data, towers):
    model = learner(data, towers=towers, epochs=10 if towers == "frozen" else 6)
    losses = [model.training.epoch() for _ in range(model._config.epochs)]
    assert losses[-1] < losses[0] / 2
    assert right(model, data) > 0.9


def test_answers_to_images_that_say_nothing_are_guesses(data):
    shuffled = build(Config(path=data.images.uri))
    shuffled.image_of[:] = np.random.default_rng(0).permutation(shuffled.image_of)
    model = learner(shuffled, epochs=6)
    for _ in range(6):
        model.training.epoch()
    # Two questions, three colours as frequent, two of three not red: (1/3 + 2/3) / 2.
    assert right(model, shuffled) < 0.8


def test_a_run_that_goes_on_ends_in_the_same_weights(data):
    whole, first, second = (learner(data, epochs=3) for _ in range(3))
    for _ in range(3):
        whole.training.epoch()
    first.training.epoch()
    kept = deepcopy(first.training.state())
    # What is kept is of this epoch, whatever comes after.
    first.training.epoch()
    second.training.load(kept)
    for _ in range(2):
        second.training.epoch()
    for name, tensor in whole.training.state()["model"].items():
        assert torch.equal(tensor, second.training.state()["model"][name]), name


def test_what_is_not_held_is_computed_again_to_the_same(data):
    held, bare = learner(data), learner(data, held_bytes=0)
    assert held._inputs.is_held
    assert not bare._inputs.is_held
    assert_same_inputs(held._inputs, bare._inputs, np.array([3, 0, 17]))


def test_frozen_towers_stay_as_they_are_and_tuned_ones_do_not(data):
    for towers, stays in (("frozen", True), ("tuned", False)):
        encoder = tiny_encoder()
        before = {name: p.clone() for name, p in encoder.model.named_parameters()}
        learner(data, towers=towers, epochs=1, encoder=encoder).training.epoch()
        changed = [n for n, p in encoder.model.named_parameters() if not torch.equal(p, before[n])]
        assert (not changed) == stays


def test_rates_are_those_of_towers_module_and_head(data):
    model = learner(data, towers="tuned", adam=AdamConfig())
    peaks = sorted(set(model.training.optimizer.lrs))
    assert peaks == pytest.approx([5e-6, 2.5e-5, 2.5e-4])


def test_an_image_that_cannot_be_read_is_not_asked_about(tmp_path):
    folder = write_vqa_rad(tmp_path / "rad", images=12)
    (folder / "VQA_RAD Image Folder" / "3.png").write_bytes(b"no image")
    Image.new("RGB", (1, 1)).save(folder / "VQA_RAD Image Folder" / "5.png")
    found = build(Config(path=str(folder)))
    model = learner(found, epochs=1)
    unreadable = {found.image_names[image]: why for image, why in model.unreadable.items()}
    assert unreadable == {"3.png": "graphic is not an image", "5.png": TOO_SMALL}


def token_shapes(encoder):
    towers = TokenTowers(encoder).eval()
    size = encoder.preparation.image_size
    tokens = torch.from_numpy(encoder.preparation.encode(["a chest ct"])[0])[None].long()
    with torch.no_grad():
        image = towers.image_tokens(torch.zeros(2, size, size, 3, dtype=torch.uint8))
        text = towers.text_tokens(tokens, torch.zeros_like(tokens, dtype=torch.bool))
    return towers, tuple(image.shape), tuple(text.shape)


def test_towers_of_every_kind_tell_their_tokens(tmp_path):
    towers, image, text = token_shapes(tiny_encoder())
    assert towers.has_class_token
    assert image == (2, 1 + 4, 32)
    assert text[2] == 32
    bert = bert_folder(tmp_path / "bert")
    of_bert = {"hf_model_name": str(bert), "hf_pooler_type": "cls_last_hidden_state_pooler"}
    settings = {"text_cfg": of_bert, "tokenizer": str(bert), "context_length": 20}
    vit = {"timm_model_name": "vit_tiny_patch16_224", "timm_pool": "", "timm_proj": "linear"}
    towers, image, text = token_shapes(
        tiny_encoder(vision_cfg={**vit, "image_size": 224}, **settings)
    )
    assert towers.has_class_token
    assert image == (2, 1 + 196, 192)
    assert text == (1, 5, 32)
    grid = {"timm_model_name": "resnet18", "timm_pool": "avg", "timm_proj": "linear"}
    towers, image, _ = token_shapes(tiny_encoder(vision_cfg={**grid, "image_size": 64}))
    assert not towers.has_class_token
    assert image == (2, 4, 512)


def test_the_class_token_is_what_the_tower_pools():
    encoder = tiny_encoder()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    towers = TokenTowers(encoder)
    with torch.no_grad():
        class_BW = towers.image_tokens(torch.from_numpy(pixels))[:, 0]
        unit_BD = torch.nn.functional.normalize(class_BW @ encoder.model.visual.proj)
    torch.testing.assert_close(unit_BD, torch.from_numpy(encoder.embed_pixels(pixels)))


def test_a_tower_without_tokens_is_refused_by_its_name():
    resnet = {"layers": [1, 1, 1, 1], "width": 16, "image_size": 32}
    with pytest.raises(ConfigError, match="ModifiedResNet"):
        TokenTowers(tiny_encoder(vision_cfg=resnet, text_cfg=TEXT))


def test_nothing_to_learn_from_is_refused(data):
    data_of_test = build(Config(path=data.images.uri))
    data_of_test.splits[:] = "test"
    with pytest.raises(ConfigError, match="split train"):
        learner(data_of_test)
    with pytest.raises(ConfigError, match="lower least_answers"):
        learner(data, least_answers=1000)


def test_inputs_of_two_workers_are_those_of_one(data):
    class Half:
        """One of two, with what the other brought kept for it."""

        count = 2

        def __init__(self, rank, brought):
            self.rank, self.brought, self.calls = rank, brought, 0

        def sum(self, values):
            self.brought.setdefault(self.calls, []).append(values.clone())
            total = sum(self.brought[self.calls])
            self.calls += 1
            return total

    def inputs(group):
        encoder = tiny_encoder()
        towers = TokenTowers(encoder).eval().requires_grad_(False)
        return Inputs(
            *(towers, encoder.preparation, data),
            frozen=True,
            device=CPU,
            group=group,
            held_bytes=1 << 30,
        )

    brought: dict = {}
    inputs(Half(0, brought))
    second, alone = inputs(Half(1, brought)), inputs(Workers())
    assert_same_inputs(second, alone, np.arange(len(data.questions)))
