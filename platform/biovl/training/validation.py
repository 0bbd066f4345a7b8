"""How good a checkpoint is: recall and loss on the val split, noted in the draft of the run."""

from typing import Any

import numpy as np
import torch

from biovl.evaluation.retrieval import KS, evaluate_retrieval, mean_recall_at_1
from biovl.storage import Draft
from biovl.training.batches import Batch
from biovl.training.checkpoints import Checkpoints
from biovl.training.config import PretrainConfig
from biovl.training.loop import autocast
from biovl.training.models import build
from biovl.training.order import read_places
from biovl.training.pairs import load_validation
from biovl.training.prepare import towers_of
from biovl.training.schedule import Plan

BATCH_PAIRS = 128
"""Pairs that are embedded at a time."""


def note_name(epoch: int) -> str:
    """Return the name under which the scores of an epoch are noted in the draft."""
    return f"validation/{epoch:04d}"


def scores_noted(draft: Draft) -> dict[int, dict[str, Any]]:
    """Return the scores of the epochs that were validated, by epoch from 0."""
    names = draft.names_noted("validation")
    return {int(name.rpartition("/")[2]): draft.noted(name) or {} for name in names}


def best_epoch(scores: dict[int, dict[str, Any]]) -> int | None:
    """Return the epoch with the best mean of both recalls at 1; of equal ones the first."""
    return max(sorted(scores), key=lambda epoch: mean_recall_at_1(scores[epoch]), default=None)


def is_validated(epoch: int, plan: Plan, every: int | None) -> bool:
    """Return whether an epoch is to be validated: every so many, and the last."""
    return every is not None and ((epoch + 1) % every == 0 or epoch + 1 == len(plan.epochs))


def steps_waiting(draft: Draft, plan: Plan, every: int | None) -> dict[int, int]:
    """Return the epochs that are to be validated and were not, by the steps done at their end."""
    scores = scores_noted(draft)
    return {
        steps: epoch
        for epoch, steps in enumerate(plan.ends())
        if is_validated(epoch, plan, every) and epoch not in scores
    }


def steps_to_keep(draft: Draft, plan: Plan, every: int | None) -> list[int]:
    """Return the steps whose checkpoints are needed: of the best epoch, and of those waiting."""
    best = best_epoch(scores_noted(draft))
    return [*steps_waiting(draft, plan, every), *([] if best is None else [plan.ends()[best]])]


@torch.inference_mode()
def validate(config: PretrainConfig, steps_done: int, device: torch.device) -> dict[str, float]:
    """Return the scores of a checkpoint, see ``evaluate_retrieval``.

    Images are prepared as stock open_clip does for evaluation; texts are those of the corpus.

    Raises:
        ArtifactError: If the checkpoint or the corpus cannot be read.
    """
    built = build(config.model, with_weights=False)
    built.model.load_state_dict(Checkpoints(config.out).load(steps_done)["model"])
    towers = towers_of(built, config.step, device)
    towers.image.eval()
    towers.text.eval()
    places = read_places(config.corpus, "val")
    images, texts = [], []
    with autocast(config.step.precision, device):
        # A corpus is shuffled: its first pairs are as good as any.
        rows = np.arange(min(config.validation.pairs or len(places), len(places)))
        for start in range(0, len(rows), BATCH_PAIRS):
            loaded = load_validation(
                config.corpus,
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
    image_ND, text_ND = torch.cat(images), torch.cat(texts)
    return evaluate_retrieval(
        image_ND,
        text_ND,
        float(towers.logit_scale.exp()),
        ks=[k for k in KS if k <= len(image_ND)],
    )
