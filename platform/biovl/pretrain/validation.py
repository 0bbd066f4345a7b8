"""Validation scores of a checkpoint: recall and loss on pairs of the val split."""

import numpy as np
import torch

from biovl.benchmark.retrieval import KS, evaluate_retrieval
from biovl.core.errors import TrainingError
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.loop import autocast
from biovl.pretrain.models import build
from biovl.pretrain.order import read_places
from biovl.pretrain.pairs import load_validation
from biovl.pretrain.prepare import towers_of
from biovl.runtime.checkpoints import Checkpoints

BATCH_PAIRS = 128
"""Pairs per forward pass."""


@torch.inference_mode()
def validate(config: PretrainConfig, steps_done: int, device: torch.device) -> dict[str, float]:
    """Return the scores of a checkpoint, see ``evaluate_retrieval``.

    Images are preprocessed as in open_clip's evaluation; pairs and texts are those of the first
    corpus.

    Raises:
        ArtifactError: If the checkpoint or the corpus cannot be read.
        TrainingError: If all pairs are unreadable and ``data.unreadable`` skips them.
    """
    built = build(config.model, with_weights=False)
    built.model.load_state_dict(Checkpoints(config.out).load(steps_done)["model"])
    towers = towers_of(built, config.step, device)
    towers.image.eval()
    towers.text.eval()
    corpus = config.corpora[0]
    places = read_places(corpus, "val")
    images, texts = [], []
    with autocast(config.step.precision, device):
        # A corpus is shuffled: its first pairs are a random sample.
        rows = np.arange(min(config.validation.pairs or len(places), len(places)))
        for start in range(0, len(rows), BATCH_PAIRS):
            loaded = load_validation(
                places,
                rows[start : start + BATCH_PAIRS],
                image_px=built.image_size,
                data=config.data,
                tokenizer=built.tokenizer,
            )
            if not loaded.tokens:
                continue
            batch = Batch.of(loaded.pixels_BHWC, loaded.tokens).to(device)
            images.append(towers.image(batch.pixels_BHWC))
            texts.append(towers.text(batch.tokens_T, batch.lengths_B))
    if not images:
        raise TrainingError(
            f"none of the {len(rows)} validation pairs of {corpus} can be read; check "
            "its val shards: data.unreadable=stop reports the first error"
        )
    image_ND, text_ND = torch.cat(images), torch.cat(texts)
    return evaluate_retrieval(
        image_ND,
        text_ND,
        float(towers.logit_scale.exp()),
        ks=[k for k in KS if k <= len(image_ND)],
    )
