"""Activation memory by the estimator, against a hand count and against real steps without data."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from open_clip.hf_model import HFTextEncoder
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from biovl.core import config as configs
from biovl.models.builders.open_clip import Built
from biovl.models.towers import ImageTower
from biovl.pretrain import activations, memory
from biovl.pretrain import config as pretrain_config
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import PretrainConfig, StepConfig
from biovl.pretrain.flops import copied_to
from biovl.pretrain.losses import info_nce
from biovl.pretrain.models import describe
from biovl.pretrain.prepare import towers_of
from biovl.pretrain.step import gradients
from biovl.runtime.workers import Workers

LENGTH = 40


def described(recipe: str):
    values = {
        **configs.recipe_settings(pretrain_config.RECIPES[recipe]()),
        "corpus": "corpus",
        "out": "out",
    }
    return describe(configs.build(PretrainConfig, values).model)


def info_of(found) -> memory.ModelInfo:
    return memory.describe(
        found.model,
        image_size=found.image_size,
        context=found.context_length,
        embed_dim=found.model_cfg["embed_dim"],
    )


def test_a_vit_keeps_what_is_counted_by_hand() -> None:
    found = info_of(described("biomedclip")).activations("packed", True, False)
    tokens, width, layers, heads = 197, 768, 12, 12
    # float32: the residual stream before either norm. bfloat16: what goes into query, key and
    # value; these; attended; what goes into the MLP, and its four times wider insides, twice.
    of_block = width * (2 * 4 + 2 * (1 + 3 + 1 + 1 + 4 + 4)) + heads * 4 + 2 * 2 * 4
    pixels, last_norm = 2 * 3 * 224**2, tokens * width * 4
    by_hand = layers * tokens * of_block + pixels + last_norm
    assert found.image.each == pytest.approx(by_hand, rel=0.002)
    # Matrices in bfloat16: 12 width² of a block, the patches, and the projection.
    matrices = layers * 12 * width**2 + 16**2 * 3 * width + width * 512
    assert found.image.weights == pytest.approx(2 * matrices, rel=0.01)


def saved_by_hooks(visual, count: int) -> int:
    """The bytes of all tensors that autograd saves in an image tower, parameters left out."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        copied = copied_to(visual, "cuda", requires_grad=True)
        with torch.device("cuda"):
            tower = ImageTower(copied, [0.5] * 3, [0.5] * 3)
        own = {p.untyped_storage()._cdata for p in copied.parameters()}
        own |= {b.untyped_storage()._cdata for b in tower.buffers()}
        saved = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            saved[storage._cdata] = (storage, storage.nbytes())
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        size = visual.image_size if isinstance(visual.image_size, int) else visual.image_size[0]
        pixels = torch.zeros(count, size, size, 3, dtype=torch.uint8, device="cuda")
        with (
            hooks,
            activations._flash_attention(padding_mask=False),
            activations._cuda_autocast(True),
        ):
            tower(pixels)
        return sum(size for cdata, (_, size) in saved.items() if cdata not in own)


@pytest.mark.parametrize("recipe", ["bmc_longclip_512", "biomedclip_rn50", "bmca_clip", "tiny"])
@pytest.mark.parametrize("count", [33])
def test_what_is_kept_is_what_autograd_saves(recipe, count) -> None:
    found = described(recipe)
    kept = activations.image_activations(
        found.model.visual, image_size=found.image_size, autocast=True, recomputed=False
    )
    saved = saved_by_hooks(found.model.visual, count)
    assert kept.bytes_of(count) + kept.weights == pytest.approx(saved, rel=0.03)
    assert kept.bytes_of(count) + kept.weights >= 0.995 * saved


class _Peak(TorchDispatchMode):
    """The most bytes alive at once of all that operations returned."""

    def __init__(self):
        super().__init__()
        self.alive, self.peak = {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor) and value.device.type == "meta":
                storage = value.untyped_storage()
                self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.alive = {k: v for k, v in self.alive.items() if not v[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return result


# The whole step on the device "meta", where it computes nothing but allocates what it would in
# float32: both towers forward and backward, the loss, gradients.
@pytest.mark.parametrize(
    ("recipe", "step", "pairs"),
    [
        ("biomedclip", StepConfig(), 128),
        ("bmc_longclip_512", StepConfig(micro_batch=64), 128),
        ("bmca_clip", StepConfig(checkpoint_activations=True), 128),
        ("tiny", StepConfig(micro_batch=256), 512),
        ("tiny", StepConfig(text="padded"), 2_048),
    ],
)
def test_a_real_step_needs_what_is_estimated(recipe, step, pairs) -> None:
    found = described(recipe)
    info = info_of(found)
    built = Built(**{**vars(found), "model": copied_to(found.model, "meta", requires_grad=True)},
                  tokenizer=None)  # fmt: skip
    towers = towers_of(built, step, torch.device("meta"))
    lengths_B = torch.full((pairs,), LENGTH, dtype=torch.int32)
    size = found.image_size
    batch = Batch(
        torch.zeros(pairs, size, size, 3, dtype=torch.uint8, device="meta"),
        torch.zeros(pairs * LENGTH, dtype=torch.int32, device="meta"),
        lengths_B,
    )
    peak = _Peak()
    with activations._flash_attention(padding_mask=False), peak:
        gradients(towers, batch, pairs, info_nce, workers=Workers(), micro_batch=step.micro_batch)
    held = memory.memory(
        info, batch=pairs, local=pairs, micro_batch=step.micro_batch or pairs,
        tokens=found.context_length if step.text == "padded" else LENGTH, tile=1_024,
        compute=step.text, autocast=False, checkpointed=step.checkpoint_activations,
    )  # fmt: skip
    assert all(p.grad is not None for p in built.model.parameters())
    # Weights and this step's pixels were there before; the gradients are in both numbers.
    estimated = held.total - held.reserve - 12 * info.parameters - held.pixels
    assert peak.peak <= estimated * 1.01
    # Where a batch is whole, gradients come as activations go.
    assert peak.peak >= 0.95 * (estimated - 4 * info.parameters)


def test_padding_is_kept_with_its_mask() -> None:
    found = described("biomedclip")
    info = info_of(found)
    packed, padded = (info.activations(way, True, False).text for way in ("packed", "padded"))
    # A mask in bfloat16 for each layer: a row of 256 for each token.
    assert padded.each - packed.each == pytest.approx(12 * 2 * 256, rel=0.05)


def test_recomputed_activations_are_inputs_of_blocks() -> None:
    found = info_of(described("biomedclip")).activations("packed", True, True)
    width, layers = 768, 12
    # float32 residuals; and less than a block's worth around the blocks.
    assert found.image.each == pytest.approx(197 * (layers + 1.5) * width * 4, rel=0.05)
    assert found.image.working_bytes_of(1) == pytest.approx(1.3 * found.image.block)


def test_two_images_take_twice_as_much_and_tokens_likewise() -> None:
    found = info_of(described("tiny")).activations("packed", True, False)
    assert found.image.bytes_of(8) == 8 * found.image.each
    assert math.isclose(replace(found.text, block=1.0).working_bytes_of(3), 0.9)


def test_attention_is_as_it_was_afterwards() -> None:
    before = F.scaled_dot_product_attention
    info_of(described("tiny")).activations("padded", True, False)
    assert before is F.scaled_dot_product_attention
    assert not torch.is_autocast_enabled("cuda")
    assert isinstance(described("biomedclip").model.text, HFTextEncoder)
