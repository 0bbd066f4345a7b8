"""METER's co-attention: two streams, each of which reads itself and then the other.

In every layer each stream attends to itself, then to the other as that left the layer before, then
passes a feed-forward layer; after each comes a residual sum and a LayerNorm (BERT's order).

Source:
    Dou et al. 2022, arXiv:2111.02387 (METER), section 3 and its code; BiomedCLIP
    (arXiv:2303.00915) answers medical questions with it.
"""

import torch
from torch import Tensor, nn

from biovl.benchmark.fusion.config import FusionConfig

# Shapes: B questions, P tokens of an image, L tokens of a question, I and T widths of the towers,
# W width of the module, A answers.

_INIT_STD = 0.02
_BERT_EPS = 1e-12


class Fusion(nn.Module):
    """From the tokens of two towers to a logit for every answer.

    Args:
        config: Its shape.
        image_width: Of the image tower's tokens, I.
        text_width: Of the text tower's tokens, T.
        answers: Number of classes, A.
        has_class_token: Whether an image's first token stands for all of it; else their mean does.
    """

    def __init__(
        self,
        config: FusionConfig,
        *,
        image_width: int,
        text_width: int,
        answers: int,
        has_class_token: bool = True,
    ) -> None:
        super().__init__()
        width = config.width
        self.has_class_token = has_class_token
        self.from_text = nn.Linear(text_width, width)
        self.from_image = nn.Linear(image_width, width)
        self.token_types = nn.Embedding(2, width)
        self.text_layers = nn.ModuleList(_layer(config) for _ in range(config.layers))
        self.image_layers = nn.ModuleList(_layer(config) for _ in range(config.layers))
        self.text_pooler = nn.Linear(width, width)
        self.image_pooler = nn.Linear(width, width)
        self.head = nn.Sequential(
            nn.Linear(2 * width, 2 * width),
            nn.LayerNorm(2 * width),
            nn.GELU(),
            nn.Linear(2 * width, answers),
        )
        self.apply(_initialise)

    def forward(self, image_BPI: Tensor, text_BLT: Tensor, padding_BL: Tensor) -> Tensor:
        """Return logits, one for each answer. Shape [B, A].

        Args:
            image_BPI: Tokens of the images.
            text_BLT: Tokens of the questions, padded.
            padding_BL: Where a question is over. bool.
        """
        text_BLW = self.from_text(text_BLT) + self.token_types.weight[0]
        image_BPW = self.from_image(image_BPI) + self.token_types.weight[1]
        for of_text, of_image in zip(self.text_layers, self.image_layers, strict=True):
            # Both from what the layer before left, neither from what the other makes of it here.
            text_BLW, image_BPW = (
                of_text(text_BLW, image_BPW, tgt_key_padding_mask=padding_BL),
                of_image(image_BPW, text_BLW, memory_key_padding_mask=padding_BL),
            )
        seen_BW = image_BPW[:, 0] if self.has_class_token else image_BPW.mean(1)
        pooled_BV = torch.cat(
            [self.text_pooler(text_BLW[:, 0]).tanh(), self.image_pooler(seen_BW).tanh()], 1
        )
        logits_BA: Tensor = self.head(pooled_BV)
        return logits_BA


def _layer(config: FusionConfig) -> nn.TransformerDecoderLayer:
    layer = nn.TransformerDecoderLayer(
        config.width,
        config.heads,
        config.width * config.mlp_ratio,
        config.dropout,
        activation="gelu",
        layer_norm_eps=_BERT_EPS,
        batch_first=True,
    )
    # BERT's feed-forward layer, which METER's is, drops only what leaves it.
    layer.dropout = nn.Dropout(0.0)
    return layer


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_INIT_STD)
    if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
        nn.init.normal_(module.in_proj_weight, std=_INIT_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
