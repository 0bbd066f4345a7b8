"""The smallest model that has all that training touches, and pairs to train it on."""

import torch
from open_clip.model import CustomTextCLIP
from torch import nn

from biovl.models.builders.open_clip import Described
from biovl.models.towers import ImageTower, TextTower
from biovl.pretrain.batches import Batch
from biovl.pretrain.memory import ModelInfo, model_info
from biovl.pretrain.step import Towers

IMAGE_PX, CONTEXT, WORDS = 8, 12, 50


def tiny_model(
    *, dropout: float = 0.0, bias: float | None = None, layers: int = 1
) -> CustomTextCLIP:
    torch.manual_seed(0)
    model = CustomTextCLIP(
        embed_dim=6,
        vision_cfg={
            "image_size": IMAGE_PX,
            "patch_size": 4,
            "width": 16,
            "layers": layers,
            "head_width": 8,
        },
        text_cfg={
            "context_length": CONTEXT,
            "vocab_size": WORDS,
            "width": 16,
            "heads": 2,
            "layers": layers,
        },
        init_logit_bias=bias,
    )
    if dropout:
        model.visual.ln_pre = nn.Sequential(model.visual.ln_pre, nn.Dropout(dropout))
        model.text.ln_final = nn.Sequential(model.text.ln_final, nn.Dropout(dropout))
    return model


def towers_of(model: CustomTextCLIP) -> Towers:
    return Towers(
        ImageTower(model.visual, [0.5] * 3, [0.25] * 3).to(model.logit_scale.dtype),
        TextTower(model.text, "packed", CONTEXT),
        model.logit_scale,
        model.logit_bias,
    )


def info_of(model: CustomTextCLIP) -> ModelInfo:
    """Return the description of a tiny model."""
    half = (0.5, 0.5, 0.5)
    return model_info(
        Described(
            model=model,
            image_size=IMAGE_PX,
            mean=half,
            std=half,
            context_length=CONTEXT,
            model_cfg={"embed_dim": 6},
        )
    )


def pairs(count: int, seed: int = 0) -> Batch:
    """Pairs whose captions have the colour of their image in them: they can be learnt."""
    numbers = torch.Generator().manual_seed(seed)
    colours = torch.randint(0, 40, (count,), generator=numbers)
    pixels = (colours[:, None, None, None] * torch.tensor([6, 3, 1])).expand(
        count, IMAGE_PX, IMAGE_PX, 3
    )
    lengths = torch.randint(2, CONTEXT, (count,), generator=numbers).int()
    captions = [
        torch.tensor([1, *[int(colour) + 2] * (int(length) - 2), WORDS - 1][-int(length) :])
        for colour, length in zip(colours, lengths, strict=True)
    ]
    return Batch(pixels.to(torch.uint8).contiguous(), torch.cat(captions).int(), lengths)


def piece(batch: Batch, start: int, stop: int) -> Batch:
    ends = [0, *batch.lengths_B.cumsum(0).tolist()]
    return Batch(
        batch.pixels_BHWC[start:stop],
        batch.tokens_T[ends[start] : ends[stop]],
        batch.lengths_B[start:stop],
    )


def gradients_of(model: CustomTextCLIP) -> dict[str, torch.Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
