"""Compiled blocks: all of them, once, whatever the lengths of captions, and with the same results."""

import logging

import pytest
import torch
import torch._dynamo as dynamo
from open_clip.model import CustomTextCLIP
from timm.layers import DropPath
from torch._dynamo.utils import counters

from biovl.models.towers import TextTower
from biovl.models.towers.attention import CaptionLayout, _attend_one_by_one, attend
from biovl.pretrain import compiling
from biovl.pretrain.prepare import blocks_of


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that are compiled, for PyTorch to run as they are."""
    dynamo.reset()
    counters.clear()
    compiled = []

    def keep(graph, _):
        compiled.append(graph)
        return graph.forward

    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **named: original(f, **named, backend=keep))
    yield compiled
    dynamo.reset()


def clip(depth: int) -> CustomTextCLIP:
    """ViT with a rate of dropped paths for each block, and a text tower of open_clip's own."""
    torch.manual_seed(0)
    return CustomTextCLIP(
        embed_dim=8,
        vision_cfg={
            "timm_model_name": "vit_tiny_patch16_224", "image_size": 224, "timm_drop_path": 0.5,
        },
        text_cfg={"context_length": 16, "vocab_size": 9, "width": 16, "heads": 2, "layers": depth},
    )  # fmt: skip


def run_images(blocks, rows, *, grad):
    with torch.set_grad_enabled(grad):
        for block in blocks:
            rows = block(rows)
    if grad:
        rows.sum().backward()


def test_blocks_with_other_rates_of_dropped_paths_share_their_graphs(graphs) -> None:
    blocks = blocks_of(clip(2).visual.train())
    rates = {part.drop_prob for block in blocks for part in block.modules()
             if isinstance(part, DropPath)}  # fmt: skip
    # More than PyTorch's limit of 8.
    assert len(rates) > 8
    compiling.compile_blocks(blocks, dynamic=False)
    watch = compiling.CompileWatch()
    for _ in range(2):
        # As in micro-batches: first without gradients, then with; and a smaller last one.
        for pairs in (3, 2):
            for grad in (False, True):
                run_images(blocks, torch.rand(pairs, 5, 192), grad=grad)
    # One for the first block, which drops nothing, and one for all others; by size and gradients.
    assert len(graphs) == 2 * 2 * 2
    assert not counters["graph_break"]
    assert watch.messages() == []
    watch.close()


def test_a_packed_tower_compiles_once_whatever_the_lengths(graphs) -> None:
    text = clip(4).text
    plain = TextTower(text, "packed", 16)
    tower = TextTower(text, "packed", 16)
    compiling.compile_text(tower, blocks_of(text))
    for lengths in ([3, 5], [16, 2], [7, 4], [9, 9]):
        lengths_B = torch.tensor(lengths, dtype=torch.int32)
        tokens_T = torch.randint(1, 9, (sum(lengths),))
        torch.testing.assert_close(tower(tokens_T, lengths_B), plain(tokens_T, lengths_B))
    assert len(graphs) == 1
    assert not counters["graph_break"]


@pytest.mark.parametrize(("causal", "reach"), [(False, None), (True, None), (False, 2)])
def test_attention_in_a_compiled_block_has_the_gradients_of_attention(causal, reach) -> None:
    lengths_B = torch.tensor([5, 1, 8], dtype=torch.int32)
    layout = CaptionLayout.of(lengths_B, torch.device("cpu"))
    torch.manual_seed(0)
    inputs = [torch.rand(14, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    weights = torch.rand(14, 2, 4, dtype=torch.float64)
    ours = _attend_one_by_one(*inputs, layout.bounds, 0.5, causal, -1 if reach is None else reach)
    theirs = attend(*inputs, layout, scale=0.5, causal=causal, reach=reach)
    torch.testing.assert_close(ours, theirs)
    for one, other in zip(
        torch.autograd.grad((ours * weights).sum(), inputs),
        torch.autograd.grad((theirs * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_dropped_paths_have_the_rate_and_the_mean_of_timms() -> None:
    torch.manual_seed(0)
    own = compiling.DropPathByTensor(DropPath(0.25)).train()
    rows = own(torch.ones(20_000, 2))
    assert (rows[:, 0] == rows[:, 1]).all()
    # Four standard deviations of 20,000 draws.
    assert (rows[:, 0] == 0).float().mean().item() == pytest.approx(0.25, abs=0.0123)
    assert rows.max().item() == pytest.approx(1 / 0.75)
    assert (own.eval()(torch.ones(9, 2)) == 1).all()
    assert not own.state_dict()


def test_a_block_that_falls_back_to_eager_is_reported_once(graphs) -> None:
    watch = compiling.CompileWatch()

    def cut(rows, times):
        return rows * times

    compiled = torch.compile(cut, dynamic=False)
    with dynamo.config.patch(recompile_limit=2):
        for length in range(2, 8):
            compiled(torch.ones(length), 2.0)
    (line,) = watch.messages()
    assert "eager" in line
    assert "cut" in line
    assert watch.messages() == []
    watch.close()
    assert watch not in logging.getLogger("torch._dynamo.convert_frame").handlers


def test_a_block_that_is_compiled_in_pieces_is_reported(graphs) -> None:
    watch = compiling.CompileWatch()

    def broken(rows):
        dynamo.graph_break()
        return rows + 1

    torch.compile(broken)(torch.ones(2))
    assert any("pieces" in line for line in watch.messages())
    watch.close()
