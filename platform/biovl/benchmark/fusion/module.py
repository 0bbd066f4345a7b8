"""METER's co-attention module: two streams, each with self-attention and cross-attention.

In every layer each stream applies self-attention, then cross-attention to the other stream's output
of the previous layer, then a feed-forward block; each is followed by a residual sum and a LayerNorm
(post-norm, as in BERT).

Source:
    Dou et al. 2022, arXiv:2111.02387 (METER), section 3 and its code; BiomedCLIP (arXiv:2303.00915)
    uses it for medical questions.
"""

import torch
from torch import Tensor, nn

from biovl.benchmark.fusion.config import FusionConfig

# Shapes: B questions, P tokens of an image, L tokens of a question, I and T widths of the towers,
# W width of the module, A answers.

_INIT_STD = 0.02
_BERT_EPS = 1e-12


class Fusion(nn.Module):
    """Fusion module: token features of two towers to a logit for every answer.

    Args:
        config: Size of the module.
        image_width: Width of the image tower's tokens, I.
        text_width: Width of the text tower's tokens, T.
        answers: Number of classes, A.
        has_class_token: Whether an image's first token is a class token; otherwise tokens are
            averaged.
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
        """Return the logits of the answers. Shape [B, A].

        Args:
            image_BPI: Image tokens.
            text_BLT: Question tokens, padded.
            padding_BL: True at padding. bool.
        """
        text_BLW = self.from_text(text_BLT) + self.token_types.weight[0]
        image_BPW = self.from_image(image_BPI) + self.token_types.weight[1]
        for of_text, of_image in zip(self.text_layers, self.image_layers, strict=True):
            # Both streams read the outputs of the previous layer, not of this one.
            text_BLW, image_BPW = (
                of_text(text_BLW, image_BPW, tgt_key_padding_mask=padding_BL),
                of_image(image_BPW, text_BLW, memory_key_padding_mask=padding_BL),
            )
        image_BW = image_BPW[:, 0] if self.has_class_token else image_BPW.mean(1)
        pooled_BV = torch.cat(
            [self.text_pooler(text_BLW[:, 0]).tanh(), self.image_pooler(image_BW).tanh()], 1
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
    # As in BERT and METER, the feed-forward block has dropout on its output only.
    layer.dropout = nn.Dropout(0.0)
    return layer


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_INIT_STD)
    if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
        nn.init.normal_(module.in_proj_weight, std=_INIT_STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
