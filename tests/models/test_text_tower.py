"""Packed and chunked captions give what padded ones give: features and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from open_clip.hf_model import HFTextEncoder
from open_clip.transformer import TextTransformer
from torch import Tensor, nn
from transformers import BertConfig, ModernBertConfig, RobertaConfig

from biovl.core.errors import ConfigError
from biovl.models.towers import TextTower, attention, texts

CONTEXT = 150


def bert(**changes: Any) -> HFTextEncoder:
    config = BertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    pooler = changes.pop("pooler_type", "cls_last_hidden_state_pooler")
    for name, value in changes.items():
        setattr(config, name, value)
    text = HFTextEncoder("", 16, config=config, pooler_type=pooler, proj_type="mlp")
    # open_clip leaves out what its own loading would: the tanh layer that nothing reads.
    text.transformer.pooler = None
    return text


def roberta() -> HFTextEncoder:
    config = RobertaConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        # Its positions begin after that of padding.
        pad_token_id=1,
        max_position_embeddings=CONTEXT + 2,
        type_vocab_size=1,
    )
    text = HFTextEncoder("", 16, config=config, pooler_type="mean_pooler", proj_type="linear")
    text.transformer.pooler = None
    return text


def modern_bert() -> HFTextEncoder:
    import open_clip.hf_model

    open_clip.hf_model.arch_dict.setdefault(
        "modernbert", {"config_names": {"width": "hidden_size"}, "pooler": "mean_pooler"}
    )
    config = ModernBertConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=48,
        local_attention=16,
        pad_token_id=0,
        max_position_embeddings=256,
    )
    return HFTextEncoder("", 16, config=config, pooler_type="mean_pooler", proj_type="linear")


def gpt() -> TextTransformer:
    return TextTransformer(
        context_length=CONTEXT, vocab_size=60, width=32, heads=4, layers=2, output_dim=16
    )


TOWERS: dict[str, Callable[[], nn.Module]] = {
    "bert": bert,
    "roberta": roberta,
    "modern_bert": modern_bert,
    "gpt": gpt,
}


def ragged(*lengths: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    captions = [torch.randint(3, 58, (length,)) for length in lengths]
    for caption in captions:
        # The end token, which is the highest: where GPT-style towers pool.
        caption[-1] = 59
    return torch.cat(captions).int(), torch.tensor(lengths, dtype=torch.int32)


def features_and_gradients(tower: TextTower) -> tuple[Tensor, dict[str, Tensor]]:
    tokens_T, lengths_B = ragged(5, CONTEXT, 1, 40, 17, 18)
    features_BD = tower(tokens_T, lengths_B)
    torch.manual_seed(2)
    (features_BD * torch.randn_like(features_BD)).sum().backward()
    gradients = {name: p.grad for name, p in tower.named_parameters() if p.grad is not None}
    return features_BD.detach(), gradients


@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("bert", "packed"),
        ("bert", "chunked"),
        ("roberta", "packed"),
        ("roberta", "chunked"),
        ("modern_bert", "packed"),
        ("modern_bert", "chunked"),
        ("gpt", "packed"),
    ],
)
def test_captions_without_padding_give_the_features_and_gradients_of_padded_ones(
    name: str, compute: Any
) -> None:
    torch.manual_seed(0)
    plain = TOWERS[name]().double()
    torch.manual_seed(0)
    other = TOWERS[name]().double()
    expected_BD, expected = features_and_gradients(TextTower(plain, "padded", CONTEXT))
    actual_BD, actual = features_and_gradients(TextTower(other, compute, CONTEXT))
    torch.testing.assert_close(actual_BD, expected_BD, atol=1e-12, rtol=0)
    assert actual.keys() == expected.keys()
    for parameter, gradient in expected.items():
        torch.testing.assert_close(actual[parameter], gradient, atol=1e-12, rtol=0, msg=parameter)


@pytest.mark.parametrize("name", TOWERS)
def test_a_caption_gives_the_same_features_whatever_it_is_packed_with(name: str) -> None:
    tower = TextTower(TOWERS[name]().double(), "packed", CONTEXT)
    tokens_T, lengths_B = ragged(30, 70, 9)
    together_BD = tower(tokens_T, lengths_B)
    alone_BD = tower(tokens_T[30:100], lengths_B[1:2])
    torch.testing.assert_close(together_BD[1:2], alone_BD, atol=1e-12, rtol=0)
    torch.testing.assert_close(together_BD.norm(dim=1), torch.ones(3).double())


@pytest.mark.parametrize("name", TOWERS)
def test_recomputed_activations_give_the_same_gradients(name: str) -> None:
    torch.manual_seed(0)
    kept = TOWERS[name]().double()
    torch.manual_seed(0)
    recomputed = TOWERS[name]().double()
    recomputed.set_grad_checkpointing()
    _, expected = features_and_gradients(TextTower(kept, "packed", CONTEXT))
    _, actual = features_and_gradients(TextTower(recomputed.train(), "packed", CONTEXT))
    for parameter, gradient in expected.items():
        torch.testing.assert_close(actual[parameter], gradient, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("text", "compute", "reason"),
    [
        (lambda: bert(pooler_type="max_pooler"), "packed", r"step\.text: .*chunked or padded"),
        (gpt, "chunked", r"step\.text: .*packed"),
        (lambda: TextTransformer(vocab_size=60, embed_cls=True), "packed", r"step\.text: .*padded"),
        (
            lambda: TextTransformer(vocab_size=60, no_causal_mask=True),
            "packed",
            r"step\.text: .*padded",
        ),
    ],
)
def test_a_tower_that_would_give_other_features_is_refused(
    text: Callable[[], nn.Module], compute: Any, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        TextTower(text(), compute, CONTEXT)


@pytest.mark.parametrize(("causal", "reach"), [(False, None), (True, None), (False, 8), (True, 8)])
def test_attention_in_padded_chunks_is_that_of_each_caption(causal: bool, reach: Any) -> None:
    # As on GPUs without a kernel for packed captions. More captions than a chunk has.
    torch.manual_seed(0)
    lengths_B = torch.randint(1, 40, (attention.CHUNK_CAPTIONS + 9,), dtype=torch.int32)
    layout = attention.CaptionLayout.of(lengths_B, torch.device("cpu"))
    tokens = int(lengths_B.sum())
    inputs = [torch.rand(tokens, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    weights = torch.rand(tokens, 2, 4, dtype=torch.float64)
    # By definition: attention over all tokens, those of other captions hidden.
    owner_T = torch.arange(len(lengths_B)).repeat_interleave(lengths_B)
    apart_TT = torch.arange(tokens)[:, None] - torch.arange(tokens)
    visible_TT = owner_T[:, None] == owner_T
    if causal:
        visible_TT = visible_TT & (apart_TT >= 0)
    if reach is not None:
        visible_TT = visible_TT & (apart_TT.abs() <= reach)
    query, key, value = (each.transpose(0, 1) for each in inputs)
    scores = (0.3 * query @ key.mT).masked_fill(~visible_TT, -torch.inf)
    expected = (scores.softmax(-1) @ value).transpose(0, 1)
    actual = attention._by_chunks(*inputs, *layout.chunks, scale=0.3, causal=causal, reach=reach)
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0)
    for one, other in zip(
        torch.autograd.grad((actual * weights).sum(), inputs),
        torch.autograd.grad((expected * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", TOWERS)
def test_towers_without_a_kernel_for_packed_captions_have_the_same_features(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    tower = TextTower(TOWERS[name]().double(), "packed", CONTEXT)
    expected_BD, expected = features_and_gradients(tower)
    tower.zero_grad()

    def by_chunks(
        query: Tensor, key: Tensor, value: Tensor, layout: Any, *, scale: Any = None,
        causal: bool = False, reach: Any = None,
    ) -> Tensor:  # fmt: skip
        return attention._by_chunks(
            *(query, key, value, *layout.chunks), scale=scale, causal=causal, reach=reach
        )

    monkeypatch.setattr(texts, "attend", by_chunks)
    actual_BD, actual = features_and_gradients(tower)
    torch.testing.assert_close(actual_BD, expected_BD, atol=1e-12, rtol=0)
    for parameter, gradient in expected.items():
        torch.testing.assert_close(actual[parameter], gradient, atol=1e-12, rtol=0, msg=parameter)


def test_dropout_of_attention_weights_is_refused_and_not_ignored() -> None:
    text = bert(attention_probs_dropout_prob=0.1).train()
    for layer in text.transformer.encoder.layer:
        layer.attention.self.dropout.p = 0.1
    with pytest.raises(ConfigError, match="dropout"):
        TextTower(text, "packed", CONTEXT)(*ragged(4, 5))


def test_on_gpus_every_layer_uses_the_flash_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    # torch takes cuDNN for layers without a window unless it is told.
    enabled: list[tuple[bool, bool]] = []

    def kernel(query: Tensor, *_: Any, **__: Any) -> Tensor:
        kernels = torch.backends.cuda
        enabled.append((kernels.flash_sdp_enabled(), kernels.cudnn_sdp_enabled()))
        return query

    monkeypatch.setattr(attention, "has_varlen_kernel", lambda device, dtype: True)
    monkeypatch.setattr(attention, "varlen_attn", kernel)
    TextTower(modern_bert(), "packed", CONTEXT)(*ragged(30, 70))
    assert enabled == [(True, False)] * 4
