"""Compiled blocks: all of them, once, whatever the lengths of captions, and with the same results."""

import logging

import pytest
import torch
import torch._dynamo as dynamo
from open_clip.model import CustomTextCLIP
from timm.layers import DropPath
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode

from biovl.core import config as configs
from biovl.models.builders.open_clip import Built
from biovl.models.towers import TextTower, attention
from biovl.models.towers.attention import CaptionLayout, _attend_in_graph, attend
from biovl.pretrain import compiling
from biovl.pretrain import config as pretrain_config
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import PretrainConfig, StepConfig
from biovl.pretrain.flops import copied_to
from biovl.pretrain.losses import LOSSES, info_nce
from biovl.pretrain.models import describe
from biovl.pretrain.step import gradients
from biovl.pretrain.tower_setup import blocks_of, towers_of
from biovl.runtime.workers import Workers
from tests.pretrain.shallow import cut


class Graphs(list):
    """Compiled graphs, and how often they were called."""

    calls = 0


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that are compiled, for PyTorch to run as they are."""
    dynamo.reset()
    counters.clear()
    compiled = Graphs()

    def keep(graph, _):
        compiled.append(graph)

        def call(*inputs):
            compiled.calls += 1
            return graph.forward(*inputs)

        return call

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


def structure(recipe: str) -> tuple[object, ...]:
    """What distinguishes the blocks of a recipe from those of others, apart from their sizes."""
    settings = pretrain_config.RECIPES[recipe]().model.settings
    image = settings.get("vision_cfg", {})
    text = settings.get("text_cfg", {}).get("hf_model_name")
    return (
        settings.get("architecture"),
        image.get("timm_model_name", "").partition("_")[0],
        image.get("timm_drop_path"),
        text,
    )


STRUCTURES = {structure(name): name for name in pretrain_config.RECIPES}


def shallow(recipe: str):
    """The model of a recipe without data, cut to the first blocks of each tower."""
    settings = configs.recipe_settings(pretrain_config.RECIPES[recipe]())
    corpora = ["corpus", "longcap"] if recipe == "bmc_longclip_plus" else "corpus"
    run = configs.build(PretrainConfig, {**settings, "corpus": corpora, "out": "out"})
    found = describe(run.model)
    cut(found.model)
    return found


def without_data(found, step):
    model = copied_to(found.model, "meta", requires_grad=True)
    built = Built(**{**vars(found), "model": model}, tokenizer=None)
    return towers_of(built, step, torch.device("meta"))


def batch_without_data(found, lengths):
    return Batch(
        torch.zeros(
            len(lengths), found.image_size, found.image_size, 3, dtype=torch.uint8, device="meta"
        ),
        torch.zeros(sum(lengths), dtype=torch.int32, device="meta"),
        torch.tensor(lengths, dtype=torch.int32),
    )


@pytest.fixture
def varlen(monkeypatch):
    """Attention as on a GPU, whose kernel has a version without data."""
    monkeypatch.setattr(attention, "has_varlen_kernel", lambda device, dtype: True)


# Tensors on the device "meta" have no data: a step that read any on the host would raise an error,
# as with .item(), a mask of booleans as an index or a copy to the host.
@pytest.mark.parametrize(
    ("recipe", "step"),
    [
        *((recipe, StepConfig(micro_batch=2)) for recipe in STRUCTURES.values()),
        ("tiny", StepConfig(text="padded")),
        ("tiny", StepConfig(loss="siglip", loss_tile=3)),
    ],
)
def test_a_step_does_not_wait_for_the_device(recipe, step, varlen) -> None:
    with pytest.raises(RuntimeError):
        torch.zeros(3, device="meta").sum().item()
    with pytest.raises(NotImplementedError):
        torch.zeros(3, device="meta").bool().nonzero()
    found = shallow(recipe)
    towers = without_data(found, step)
    gradients(
        towers, batch_without_data(found, [3, 5, 9, 4]), 4, LOSSES[step.loss], workers=Workers(),
        micro_batch=step.micro_batch, tile=step.loss_tile,
    )  # fmt: skip
    assert towers.logit_scale.grad is not None


# The step of a run with the settings that make it run blocks in all ways: micro-batches without
# gradients and with them, and again in the backward pass for their activations.
@pytest.mark.parametrize("recipe", STRUCTURES.values())
def test_every_recipe_is_compiled_once_and_in_one_piece(recipe, graphs, varlen) -> None:
    found = shallow(recipe)
    step = StepConfig(compile=True, micro_batch=2, checkpoint_activations=True)
    towers, watch, counts = without_data(found, step), compiling.CompileWatch(), []
    for lengths in ([3, 5, 9, 4], [20, 130, 7, 8]):
        calls = graphs.calls
        gradients(
            towers, batch_without_data(found, lengths), 4, info_nce, workers=Workers(),
            micro_batch=2,
        )  # fmt: skip
        counts.append((len(graphs), graphs.calls - calls))
    assert not counters["graph_break"]
    assert watch.messages() == []
    watch.close()
    # No graph for other lengths, and in each step as many calls as blocks times passes.
    assert counts[0] == counts[1]
    visual, text = found.model.visual, found.model.text
    images = sum(type(part) is type(blocks_of(visual)[0]) for part in visual.modules())
    texts = len(blocks_of(text))
    # A ResNet recomputes nothing, a graph of transformers recomputes by itself.
    again = (0 if "rn50" in recipe else images) + (0 if hasattr(text, "config") else texts)
    micro_batches, passes = 2, 2
    assert counts[0][1] == micro_batches * (passes * (images + texts) + again)


@pytest.mark.parametrize("failing", ["forward", "backward"])
def test_a_block_that_cannot_be_compiled_runs_eagerly_and_is_reported(failing, monkeypatch) -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def keep(graph, _):
        return make_boxed_func(graph.forward)

    def fail(graph, _):
        raise RuntimeError("no C compiler was found")

    compilers = {"fw_compiler": keep, "bw_compiler": keep}
    backend = aot_autograd(**{**compilers, f"{failing[0]}w_compiler": fail})
    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **named: original(f, **named, backend=backend))
    dynamo.reset()
    watch = compiling.CompileWatch()
    blocks, eager = (blocks_of(clip(2).visual.eval())[:2] for _ in range(2))
    compiling.compile_blocks(blocks, dynamic=False)
    rows = torch.rand(2, 5, 192)
    for _ in range(2):
        torch.manual_seed(0)
        compiled_rows = run_images(blocks, rows, grad=True)
    (line,) = watch.messages()
    watch.close()
    dynamo.reset()
    torch.manual_seed(0)
    for block in eager:
        rows = block(rows)
    assert "no C compiler was found" in line
    assert all(p.grad is not None for block in blocks for p in block.parameters())
    torch.testing.assert_close(compiled_rows, rows)


def run_images(blocks, rows, *, grad):
    with torch.set_grad_enabled(grad):
        for block in blocks:
            rows = block(rows)
    if grad:
        rows.sum().backward()
    return rows.detach()


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


@pytest.mark.parametrize("recipe", ["biomedclip", "biomedclip_gpt", "bmc_longclip_512"])
def test_blocks_with_the_kernel_for_packed_captions_are_compiled_in_one_piece(
    recipe, graphs, monkeypatch
) -> None:
    @dynamo.disable
    def capability(device):
        return 8, 0

    # As torch's own, a function that the compiler cannot look into.
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    text = shallow(recipe).model.text.to(torch.bfloat16)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), torch.device("cuda"):
        tower = TextTower(copied_to(text, "cuda", requires_grad=True), "packed", 77)
        compiling.compile_text(tower, blocks_of(tower.text))
        layout = CaptionLayout(
            [3, 9], 9, torch.zeros(3, dtype=torch.int32), torch.zeros(12, dtype=torch.long),
            torch.zeros(2, dtype=torch.int32, device="cpu"),
        )  # fmt: skip
        tower.packed(torch.zeros(12, dtype=torch.long), layout)
    assert not counters["graph_break"]
    code = "".join(graph.code for graph in graphs)
    assert "torch_attn._varlen_attn" in code
    assert "attend_in_graph" not in code


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
    ours = _attend_in_graph(*inputs, lengths_B, 0.5, causal, -1 if reach is None else reach)
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
