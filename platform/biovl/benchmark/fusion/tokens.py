"""Token features of image and text towers: their last hidden states, before pooling."""

from typing import Any

import torch
from open_clip.hf_model import HFTextEncoder
from open_clip.timm_model import TimmModel
from open_clip.transformer import TextTransformer, VisionTransformer
from torch import Tensor, nn

from biovl.core.errors import ConfigError
from biovl.models.encoder import Encoder

# Shapes: B images or questions, H height, C channels, P tokens of an image, L tokens of a question,
# I and T widths of the towers.


class TokenTowers(nn.Module):
    """The two towers of a model, up to their last hidden states.

    Args:
        encoder: The model.

    Raises:
        ConfigError: If a tower does not give token features; the message names it.
    """

    mean: Tensor
    """Mean of each channel, for pixel normalization."""
    std: Tensor
    """Standard deviation of each channel, for pixel normalization."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.visual, self.text = encoder.model.visual, encoder.model.text
        preparation = encoder.preparation
        self.register_buffer("mean", torch.tensor(preparation.mean)[:, None, None], False)
        self.register_buffer("std", torch.tensor(preparation.std)[:, None, None], False)
        self.has_class_token = _check_image_tower(self.visual)
        _check_text_tower(self.text)
        side = preparation.image_size
        with torch.no_grad():
            image_BPI = self.image_tokens(torch.zeros(1, side, side, 3, dtype=torch.uint8))
            tokens_BL = torch.from_numpy(preparation.encode(["?"])[0])[None].long()
            text_BLT = self.text_tokens(tokens_BL, torch.zeros_like(tokens_BL, dtype=torch.bool))
        self.image_tokens_count: int = image_BPI.shape[1]
        """Tokens of an image, P."""
        self.image_width: int = image_BPI.shape[2]
        self.text_width: int = text_BLT.shape[2]

    def image_tokens(self, pixels_BHHC: Tensor) -> Tensor:
        """Return the tokens of preprocessed uint8 images, from ``Preparation``. Shape [B, P, I]."""
        values_BCHH = pixels_BHHC.permute(0, 3, 1, 2).to(torch.float32).div_(255)
        values_BCHH = values_BCHH.sub_(self.mean).div_(self.std)
        visual: Any = self.visual
        if isinstance(visual, VisionTransformer):
            tokens_BPI: Tensor = visual.transformer(visual._embeds(values_BCHH))
            return tokens_BPI if visual.final_ln_after_pool else visual.ln_post(tokens_BPI)
        features: Tensor = visual.trunk.forward_features(values_BCHH)
        if features.ndim == 3:
            return features
        channels_first = features.shape[1] == visual.trunk.num_features
        return features.flatten(2).transpose(1, 2) if channels_first else features.flatten(1, 2)

    def text_tokens(self, tokens_BL: Tensor, padding_BL: Tensor) -> Tensor:
        """Return the last hidden states of questions. Shape [B, L, T].

        Args:
            tokens_BL: Token ids, padded to the longest with the tokenizer's padding id. int64.
            padding_BL: True at padding. bool.
        """
        text: Any = self.text
        if isinstance(text, HFTextEncoder):
            hidden_BLT: Tensor = text.transformer(
                input_ids=tokens_BL, attention_mask=(~padding_BL).long()
            ).last_hidden_state
            return hidden_BLT
        # As in open_clip's forward, which pads to the context; here the mask is cut to the longest.
        hidden_BLT, mask = text._embeds(tokens_BL)
        length = hidden_BLT.shape[1]
        mask = None if mask is None else mask[..., :length, :length]
        final_BLT: Tensor = text.ln_final(text.transformer(hidden_BLT, attn_mask=mask))
        return final_BLT


def _check_image_tower(visual: nn.Module) -> bool:
    """Return whether the first token of an image is a class token."""
    if isinstance(visual, VisionTransformer):
        if visual.attn_pool is not None:
            raise ConfigError(
                "the image tower VisionTransformer pools by attention and has no output per patch; "
                "vqa needs one that pools by its class token or by their mean"
            )
        return True
    if isinstance(visual, TimmModel) and hasattr(visual.trunk, "forward_features"):
        return bool(getattr(visual.trunk, "num_prefix_tokens", 0))
    raise ConfigError(
        f"the image tower {type(visual).__name__} has no output per patch; vqa "
        "needs open_clip's VisionTransformer or a trunk of timm"
    )


def _check_text_tower(text: nn.Module) -> None:
    if not isinstance(text, HFTextEncoder | TextTransformer):
        raise ConfigError(
            f"the text tower {type(text).__name__} has no output per token; vqa "
            "needs open_clip's TextTransformer or one of transformers"
        )
