"""The text tower: captions of any length to unit features, without computing padding.

Three modes give the same features. *packed*: all captions in one sequence through every layer,
attention within each caption. *chunked*: sorted by length, a few at a time, padded to the longest
of them. *padded*: all padded to the context length, as in stock open_clip. Real captions fill 21 to
42 % of their context, so packed computes a third to a fifth of padded.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from open_clip.hf_model import ClsLastHiddenStatePooler, HFTextEncoder, MeanPooler
from open_clip.transformer import ResidualAttentionBlock, TextTransformer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface

from biovl.core.errors import ConfigError
from biovl.models.towers.attention import (
    CHUNK_CAPTIONS,
    CaptionLayout,
    attend,
    segment_mean,
    to_device,
)
from biovl.models.towers.images import unit_rows

# Shapes: B captions, T tokens of all captions, L tokens of the longest, W width, D embedding.

TextCompute = Literal["packed", "chunked", "padded"]

_PACKED_ATTENTION = "biovl_packed"


class TextTower(nn.Module):
    """Text tower: ``text`` of an open_clip model, applied to captions of any length.

    Args:
        text: open_clip's ``HFTextEncoder`` (BERT, ModernBERT …) or ``TextTransformer``.
        compute: One of the modes above. ``packed`` permanently sets the attention of a Hugging Face
            model.
        context: Tokens to which ``padded`` pads.

    Raises:
        ConfigError: If the tower does not support the mode.
    """

    def __init__(self, text: nn.Module, compute: TextCompute, context: int) -> None:
        super().__init__()
        self.text = text
        self.compute = compute
        self.context = context
        if compute != "padded":
            _check(text, compute)
        if compute == "packed" and isinstance(text, HFTextEncoder):
            text.transformer.set_attn_implementation(_PACKED_ATTENTION)
        self._block = _packed_block

    @property
    def attention_shape(self) -> tuple[int, int, bool]:
        """Attention heads, dimensions of a head, and whether attention is causal."""
        text: Any = self.text
        if isinstance(text, HFTextEncoder):
            heads, is_causal = int(text.config.num_attention_heads), False
            return heads, int(text.config.hidden_size) // heads, is_causal
        attention = text.transformer.resblocks[0].attn
        return attention.num_heads, attention.head_dim, text.attn_mask is not None

    def compile_packed_block(self) -> None:
        """Compile the blocks of open_clip's own tower for packed captions."""
        self._block = torch.compile(_packed_block, dynamic=True)

    def forward(self, tokens_T: Tensor, lengths_B: Tensor) -> Tensor:
        """Return unit features, float32 or wider. Shape [B, D].

        Args:
            tokens_T: All captions concatenated, with their start and end tokens. Integer.
            lengths_B: Number of tokens of each caption. int32, on the host.
        """
        tokens_T = tokens_T.long()
        if self.compute == "padded":
            return unit_rows(self.text(self._padded(tokens_T, lengths_B, self.context)))
        if self.compute == "chunked":
            return unit_rows(self._chunked(tokens_T, lengths_B))
        return self.packed(tokens_T, CaptionLayout.of(lengths_B, tokens_T.device))

    def packed(self, tokens_T: Tensor, layout: CaptionLayout) -> Tensor:
        """Return unit features of packed captions. Shape [B, D]."""
        if isinstance(self.text, HFTextEncoder):
            return unit_rows(_packed_transformers(self.text, tokens_T, layout))
        return unit_rows(_packed_open_clip(self.text, tokens_T, layout, self._block))

    def _chunked(self, tokens_T: Tensor, lengths_B: Tensor) -> Tensor:
        captions = tokens_T.split(lengths_B.tolist())
        order = torch.argsort(lengths_B, stable=True)
        chunks = [
            self.text(
                self._padded(
                    torch.cat([captions[i] for i in chunk.tolist()]),
                    lengths_B[chunk],
                    int(lengths_B[chunk[-1]]),
                )
            )
            for chunk in order.split(CHUNK_CAPTIONS)
        ]
        return torch.cat(chunks)[to_device(torch.argsort(order), tokens_T.device)]

    def _padded(self, tokens_T: Tensor, lengths_B: Tensor, longest: int) -> Tensor:
        # An index of integers: with one of booleans the host waits for the device.
        inside_BL = torch.arange(longest) < lengths_B[:, None]
        places_T = to_device(inside_BL.flatten().nonzero()[:, 0], tokens_T.device)
        padded = tokens_T.new_full((len(lengths_B) * longest,), _pad_token(self.text))
        return padded.index_copy(0, places_T, tokens_T).view(-1, longest)


def _pad_token(text: nn.Module) -> int:
    if isinstance(text, HFTextEncoder):
        return int(text.config.pad_token_id)
    return int(getattr(text, "pad_id", 0))


def _check(text: nn.Module, compute: TextCompute) -> None:
    if isinstance(text, HFTextEncoder):
        if compute == "packed" and not isinstance(
            text.pooler, ClsLastHiddenStatePooler | MeanPooler
        ):
            raise ConfigError(
                "step.text: packed supports cls_last_hidden_state_pooler and mean_pooler, "
                f"not {type(text.pooler).__name__}; choose chunked or padded"
            )
        return
    if compute == "chunked":
        raise ConfigError("step.text: chunked is for Hugging Face text towers; choose packed")
    if (
        not isinstance(text, TextTransformer)
        or text.cls_emb is not None
        or text.pool_type not in ("argmax", "eos", "first")
        or (text.attn_mask is None and not text.use_pad_mask)
        or not all(type(b) is ResidualAttentionBlock for b in text.transformer.resblocks)
    ):
        raise ConfigError(
            f"step.text: packed does not support this text tower ({type(text).__name__} with its "
            "options); choose padded"
        )


def _packed_transformers(text: HFTextEncoder, tokens_T: Tensor, layout: CaptionLayout) -> Tensor:
    # The model sees one long sequence whose positions restart with every caption; it makes no mask
    # for an attention it does not know, and passes `layout` down to it.
    positions_T = layout.positions_T + _first_position(text)
    hidden_TW = text.transformer(
        input_ids=tokens_T[None], position_ids=positions_T[None], layout=layout
    ).last_hidden_state[0]
    if isinstance(text.pooler, MeanPooler):
        pooled_BW = segment_mean(hidden_TW, layout)
    else:
        pooled_BW = hidden_TW[layout.first]
    features_BD: Tensor = text.proj(pooled_BW)
    return features_BD


def _first_position(text: HFTextEncoder) -> int:
    """Return the position of a first token: RoBERTa's positions start after that of padding."""
    return int(text.config.pad_token_id) + 1 if "roberta" in text.config.model_type else 0


def _packed_attention(
    module: nn.Module,
    query_1HTd: Tensor,
    key_1HTd: Tensor,
    value_1HTd: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: CaptionLayout,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it. ModernBERT's window includes the token itself."""
    if attention_mask is not None or dropout:
        raise ConfigError(
            "packed text has no mask and no dropout of attention weights: set the text tower's "
            "attention dropout to 0"
        )
    attended_THd = attend(
        query_1HTd[0].transpose(0, 1),
        key_1HTd[0].transpose(0, 1),
        value_1HTd[0].transpose(0, 1),
        layout,
        scale=scaling,
        reach=None if sliding_window is None else sliding_window - 1,
    )
    return attended_THd[None], None


AttentionInterface.register(_PACKED_ATTENTION, _packed_attention)


def _packed_open_clip(
    text: TextTransformer,
    tokens_T: Tensor,
    layout: CaptionLayout,
    packed_block: Callable[..., Tensor],
) -> Tensor:
    dtype = text.transformer.get_cast_dtype()
    hidden_TW = text.token_embedding(tokens_T).to(dtype)
    hidden_TW = hidden_TW + text.positional_embedding[layout.positions_T].to(dtype)
    causal = text.attn_mask is not None
    for block in text.transformer.resblocks:
        if text.transformer.grad_checkpointing and torch.is_grad_enabled():
            hidden_TW = checkpoint(
                packed_block, block, hidden_TW, layout, causal, use_reentrant=False
            )
        else:
            hidden_TW = packed_block(block, hidden_TW, layout, causal)
    pooled_BW: Tensor = text.ln_final(hidden_TW)[
        layout.first if text.pool_type == "first" else layout.last
    ]
    if text.text_projection is None:
        return pooled_BW
    if isinstance(text.text_projection, nn.Linear):
        projected_BD: Tensor = text.text_projection(pooled_BW)
        return projected_BD
    projection_WD: Tensor = text.text_projection
    return pooled_BW @ projection_WD


def _packed_block(
    block: ResidualAttentionBlock, hidden_TW: Tensor, layout: CaptionLayout, causal: bool
) -> Tensor:
    """The forward of open_clip's block, with the weights of its ``nn.MultiheadAttention``."""
    attention = block.attn
    tokens, heads = len(hidden_TW), attention.num_heads
    mixed_TW = nn.functional.linear(
        block.ln_1(hidden_TW), attention.in_proj_weight, attention.in_proj_bias
    )
    query, key, value = (part.view(tokens, heads, -1) for part in mixed_TW.chunk(3, dim=-1))
    attended_TW = attend(query, key, value, layout, causal=causal).reshape(tokens, -1)
    hidden_TW = hidden_TW + block.ls_1(attention.out_proj(attended_TW))
    result_TW: Tensor = hidden_TW + block.ls_2(block.mlp(block.ln_2(hidden_TW)))
    return result_TW
