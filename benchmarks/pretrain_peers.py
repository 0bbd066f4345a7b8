"""The same training step by us and by stock open_clip, on the same weights, images and captions.

Stock is open_clip 3.3's own ``train_one_epoch`` with its ``CustomTextCLIP``, ``ClipLoss`` and
AdamW, not a copy of it; it only never built a ModernBERT tower, so that one is ours to build, and
reads padded captions through open_clip's own ``HFTextEncoder.forward``. Its images come
normalised in float32 and its captions padded, as its data loader makes them beforehand; ours come
as bytes and ragged, and are normalised and laid out within the step.
"""

import argparse
import copy
import itertools
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from open_clip import ClipLoss
from open_clip_train.precision import get_autocast
from open_clip_train.scheduler import cosine_lr
from open_clip_train.train import train_one_epoch
from scipy import optimize, stats
from torch import Tensor

from biovl.core import config as configs
from biovl.models.builders import open_clip as models
from biovl.models.builders.open_clip import Built
from biovl.models.text_configs import KNOWN
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import OptimConfig, PretrainConfig, StepConfig
from biovl.pretrain.loop import Trainer, train
from biovl.pretrain.schedule import Plan
from biovl.pretrain.tower_setup import towers_of
from biovl.runtime.workers import Workers

# Shapes: B pairs, H height, W width, L tokens of the context.

STEPS = 10**9
"""Of a run that never ends: warm-up with small steps, so that weights stay what they are."""

_WEIGHTS = ("weights", "image_weights", "text_weights")
_FIRST_WORD, _LAST_WORD = 1_000, 29_000
"""Ids that are words, and no special tokens, in every vocabulary of the papers."""


# --- captions -----------------------------------------------------------------------------------


def law(name: str) -> Any:
    """Return a distribution of tokens per caption.

    ``A``: log-normal, median 64, 90th percentile 256 (BIOMEDICA's median, BiomedCLIP's 90 %).
    ``B``: gamma, median 85, 90th percentile 299: mean 127, 55 % of tokens lost at 77 and 2 % at
    512 as in BMC-LongCLIP.
    """
    if name == "A":
        return stats.lognorm(s=math.log(256 / 64) / stats.norm.ppf(0.9), scale=64)
    shape = optimize.brentq(
        lambda k: stats.gamma.ppf(0.9, k) / stats.gamma.ppf(0.5, k) - 299 / 85, 0.1, 10
    )
    return stats.gamma(shape, scale=85 / stats.gamma.ppf(0.5, shape))


def lengths(name: str, count: int, context: int, seed: int = 0) -> np.ndarray:
    """Return tokens of each caption, cut to the context: one of each quantile of a law, shuffled.

    A small batch then fills its context as much as a large one. Shape [B], int32.
    """
    numbers = np.random.default_rng(seed)
    drawn_B = law(name).ppf((np.arange(count) + numbers.random(count)) / count)
    drawn_B = np.clip(np.rint(drawn_B), 3, context).astype(np.int32)
    return numbers.permutation(drawn_B)


def batch_of(built: Built, law_name: str, count: int, seed: int = 0) -> Batch:
    """Return pairs of noise and made-up captions."""
    rng = np.random.default_rng(seed)
    size = built.image_size
    start, end = (49_406, 49_407) if built.tokenizer.is_clip else (101, 102)
    captions = [
        np.array([start, *rng.integers(_FIRST_WORD, _LAST_WORD, length - 2), end], np.int32)
        for length in lengths(law_name, count, built.context_length, seed)
    ]
    return Batch.of(rng.integers(0, 256, (count, size, size, 3), np.uint8), captions)


# --- models -------------------------------------------------------------------------------------


def build(settings: Mapping[str, Any]) -> Built:
    """Return a model with random weights; what a tokenizer is needed for, an empty one does."""
    with tempfile.TemporaryDirectory() as folder:
        built: Built = models.build(configs.build(models.Config, offline(settings, folder)))
        return built


def offline(settings: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return settings of a model without weights, with an empty tokenizer if it needs one."""
    plain = {name: value for name, value in settings.items() if name not in _WEIGHTS}
    hub_name = plain.get("text_cfg", {}).get("hf_model_name")
    if hub_name is None:
        return plain
    kind = plain.get("text_transformer", {}).get("model_type", KNOWN[hub_name]["model_type"])
    _save_tokenizer(folder, pad_id=50_283 if kind == "modernbert" else 0)
    return {**plain, "tokenizer": folder}


def _save_tokenizer(folder: str, pad_id: int) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = WordLevel({"[PAD]": pad_id, "[UNK]": 100, "word": _FIRST_WORD}, unk_token="[UNK]")
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(words), pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)


def copied(built: Built) -> Built:
    """Return the model again, with weights of its own."""
    return Built(**{**vars(built), "model": copy.deepcopy(built.model)})


# --- the two --------------------------------------------------------------------------------------


class Ours:
    """Our training loop, without Ray.

    Args:
        built: Its model is trained; give it a copy.
        batches: On the host; taken in turn.
        optim: Of both sides.
        step: How it is computed.
        device: Where.
    """

    def __init__(
        self,
        built: Built,
        batches: Sequence[Batch],
        optim: OptimConfig,
        step: StepConfig,
        device: torch.device,
    ) -> None:
        config = configs.build(
            PretrainConfig,
            {
                "corpus": "",
                "out": "",
                "model.name": "open_clip",
                "batch.pairs": len(batches[0]),
                "optim": vars(optim),
                "step": vars(step),
                "trouble.diverged": None,
            },
        )
        self._built, self._batches, self._config = built, batches, config
        towers = towers_of(built, config.step, device)
        plan = Plan([(len(batches[0]), STEPS)])
        self._trainer = Trainer(
            *(towers, built.model, config, plan),
            device=device,
            workers=Workers(),
            halved=_refuse_to_halve,
        )
        self._endless = itertools.cycle(batches)

    def steps(self, count: int) -> None:
        """Train for some steps."""
        some = itertools.islice(self._endless, count)
        for _ in train(self._trainer, some):
            pass

    def gradient(self) -> tuple[float, dict[str, Tensor]]:
        """Return loss and gradients of the first batch."""
        loss = float(self._trainer.compute(self._batches[0].to(self._trainer.device)))
        return loss, _gradients(self._built)


def _refuse_to_halve(before: int, after: int) -> None:
    """Let a step that does not fit fail, as it does elsewhere: halves compute everything twice."""
    raise torch.OutOfMemoryError(f"{before} pairs at a time do not fit")


class Stock:
    """open_clip 3.3's training loop.

    Args:
        built: Its model is trained; give it a copy.
        batches: On the host; what it wants of them is made here, and is not timed.
        optim: Of both sides.
        precision: As ``--precision`` names it: ``fp32``, ``amp_bf16``; ``amp`` is its default.
        checkpointing: Its ``--grad-checkpointing``.
        device: Where.
    """

    def __init__(
        self,
        built: Built,
        batches: Sequence[Batch],
        optim: OptimConfig,
        device: torch.device,
        *,
        precision: str = "fp32",
        checkpointing: bool = False,
    ) -> None:
        self._built, self._device = built, device
        model = self._model = built.model.to(device).train()
        model.output_dict = True
        if checkpointing:
            model.set_grad_checkpointing()
        self._batches = [_as_stock(built, batch, pinned=device.type == "cuda") for batch in batches]
        self._loss = ClipLoss()
        # From here on as in its main(), which is one function.
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        decayed = {
            n
            for n, p in named
            if not (p.ndim < 2 or "bn" in n or "ln" in n or "bias" in n or "logit_scale" in n)
        }
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
                {
                    "params": [p for n, p in named if n in decayed],
                    "weight_decay": optim.weight_decay,
                },
            ],
            lr=optim.peak_lr,
            betas=optim.betas,
            eps=optim.eps,
        )
        self._scaler = torch.amp.GradScaler(device=device.type) if precision == "amp" else None
        self._scheduler = cosine_lr(self._optimizer, optim.peak_lr, optim.warmup_steps, STEPS)
        self._args = argparse.Namespace(
            accum_freq=1,
            batch_size=len(batches[0]),
            device=str(device),
            distill=False,
            grad_clip_norm=optim.clip_grad_norm,
            horovod=False,
            log_every_n_steps=100,
            precision=precision,
            rank=0,
            skip_scheduler=False,
            wandb=False,
            world_size=1,
        )
        self._endless = itertools.cycle(self._batches)

    def steps(self, count: int) -> None:
        """Train for some steps."""
        loader = _Loader(list(itertools.islice(self._endless, count)), self._args.batch_size)
        train_one_epoch(
            self._model,
            {"train": loader},
            self._loss,
            0,
            self._optimizer,
            self._scaler,
            self._scheduler,
            None,
            self._args,
        )

    def gradient(self) -> tuple[float, dict[str, Tensor]]:
        """Return loss and gradients of the first batch."""
        images, texts = (tensor.to(self._device) for tensor in self._batches[0])
        self._optimizer.zero_grad()
        with get_autocast(self._args.precision, self._device.type)():
            loss = self._loss(**self._model(images, texts))
        loss.backward()
        return loss.item(), _gradients(self._built)


class _Loader:
    """Batches as open_clip's training loop wants them."""

    def __init__(self, batches: Sequence[tuple[Tensor, Tensor]], batch_size: int) -> None:
        self._batches = batches
        self.num_batches, self.num_samples = len(batches), len(batches) * batch_size
        self.dataloader = self

    def set_epoch(self, epoch: int) -> None:
        """Nothing is shuffled."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self._batches)


def _as_stock(built: Built, batch: Batch, *, pinned: bool) -> tuple[Tensor, Tensor]:
    """Return normalised images and padded texts, shapes [B, 3, H, W] and [B, L]."""
    pixels_BCHW = batch.pixels_BHWC.permute(0, 3, 1, 2).float().div_(255)
    mean, std = (torch.tensor(v)[:, None, None] for v in (built.mean, built.std))
    pixels_BCHW.sub_(mean).div_(std)
    texts_BL = torch.full((len(batch), built.context_length), built.tokenizer.pad_id)
    inside_BL = torch.arange(built.context_length) < batch.lengths_B[:, None]
    texts_BL[inside_BL] = batch.tokens_T.long()
    pixels_BCHW = pixels_BCHW.contiguous()
    if pinned:
        return pixels_BCHW.pin_memory(), texts_BL.pin_memory()
    return pixels_BCHW, texts_BL


def _gradients(built: Built) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in built.model.named_parameters() if p.grad is not None}


def difference(ours: dict[str, Tensor], stock: dict[str, Tensor]) -> float:
    """Return the norm of the difference of all gradients, relative to that of stock's."""
    apart = sum(float((ours[n] - stock[n]).double().square().sum()) for n in stock)
    whole = sum(float(g.double().square().sum()) for g in stock.values())
    return math.sqrt(apart / whole)
