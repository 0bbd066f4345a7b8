"""Activation memory of the towers, by hand and against what autograd saves."""

import pytest
import torch
import torch.nn.functional as F

from biovl.pretrain.fake_gpu import fake_gpu
from biovl.pretrain.flops import copied_to
from tests.pretrain.test_step_on_gpu import config_of, described


def towers(recipe: str, compute: str = "packed", *, recomputed: bool = False):
    return described(config_of(recipe))[1].activations(compute, True, recomputed)


def test_a_vit_keeps_what_is_counted_by_hand() -> None:
    found = towers("biomedclip")
    tokens, width, layers, heads = 197, 768, 12, 12
    # float32: the residual stream before either norm. bfloat16: what goes into query, key and
    # value; these; attended; what goes into the MLP, and its four times wider insides, twice.
    of_block = width * (2 * 4 + 2 * (1 + 3 + 1 + 1 + 4 + 4)) + heads * 4 + 2 * 2 * 4
    pixels, last_norm = 2 * 3 * 224**2, tokens * width * 4
    by_hand = layers * tokens * of_block + pixels + last_norm
    assert found.image.each == pytest.approx(by_hand, rel=0.005)
    # Matrices in bfloat16: 12 width² of a block, the patches, and the projection.
    matrices = layers * 12 * width**2 + 16**2 * 3 * width + width * 512
    assert found.image.weights == pytest.approx(2 * matrices, rel=0.01)


def test_weights_are_copied_by_autocast_alone() -> None:
    found = described(config_of("tiny"))[1].activations("packed", False, False)
    assert abs(found.image.weights) < 1e5
    assert abs(found.text.weights) < 1e5


def test_padding_is_kept_with_its_mask() -> None:
    packed, padded = (towers("biomedclip", way).text for way in ("packed", "padded"))
    # A mask in bfloat16, a row of 256 for each token, which all layers share.
    assert padded.each - packed.each == pytest.approx(12 * 2 * 256, rel=0.2)


def test_recomputed_activations_are_inputs_of_blocks() -> None:
    found = towers("biomedclip", recomputed=True)
    width, layers = 768, 12
    # float32 residuals; and less than a block's worth around the blocks.
    assert found.image.each == pytest.approx(197 * (layers + 1.5) * width * 4, rel=0.05)
    # A block at a time is there again, with its gradients.
    block = towers("biomedclip").image.each / layers
    assert block < found.image.working < 1.5 * block


def test_gradients_on_a_fake_gpu_are_those_of_autograd() -> None:
    """In shapes and dtypes, and in the order in which tensors are freed."""

    def model():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(4, 8, bias=False), torch.nn.LayerNorm(8), torch.nn.GELU(),
            torch.nn.Linear(8, 1),
        )  # fmt: skip

    real = model()
    real(torch.zeros(3, 4)).sum().backward()
    with fake_gpu() as trace:
        fake = copied_to(model(), "cuda:0", requires_grad=True)
        rows = torch.zeros(3, 4, device="cuda:0")
        before = trace.alive
        loss = (fake(rows) * rows[:, :1]).sum()
        loss.backward()
        del loss
        for one, other in zip(real.parameters(), fake.parameters(), strict=True):
            assert (one.grad.shape, one.grad.dtype) == (other.grad.shape, other.grad.dtype)
        # Gradients are left, nothing else.
        assert trace.alive - before == sum(4 * p.numel() for p in fake.parameters())


def test_everything_is_as_before_afterwards() -> None:
    before = F.scaled_dot_product_attention, torch.Tensor.backward, torch.get_rng_state()
    with pytest.raises(ValueError, match="stop"), fake_gpu():
        torch.manual_seed(7)
        raise ValueError("stop")
    assert (F.scaled_dot_product_attention, torch.Tensor.backward) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])
    assert not torch.is_autocast_enabled("cuda")
    weight = torch.ones(2, requires_grad=True)
    (weight * 3).sum().backward()
    assert weight.grad.tolist() == [3, 3]
