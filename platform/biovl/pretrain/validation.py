"""Validation scores of a checkpoint: recall and loss on the val split, and additional tasks."""

from collections.abc import Mapping

import numpy as np
import torch

from biovl.benchmark import encoders, in_memory
from biovl.benchmark.retrieval import KS, evaluate_retrieval
from biovl.core.errors import TrainingError
from biovl.core.workers import Precision
from biovl.models.encoder import Encoder
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.loop import autocast
from biovl.pretrain.models import build
from biovl.pretrain.order import read_places
from biovl.pretrain.pairs import load_validation
from biovl.pretrain.tower_setup import towers_of
from biovl.runtime.checkpoints import Checkpoints

BATCH_PAIRS = 128
"""Pairs per forward pass."""

TASKS = "validation.tasks"
"""Name of the setting with further tasks."""

_PRECISIONS: dict[str, Precision] = {"auto": "auto", "bf16": "bfloat16", "fp32": "float32"}


@torch.inference_mode()
def validate(config: PretrainConfig, steps_done: int, device: torch.device) -> dict[str, float]:
    """Return the scores of a checkpoint, see ``evaluate_retrieval``; ``TASK/METRIC`` for tasks.

    Images are preprocessed as by the published model; pairs and texts are those of the first
    corpus.

    Raises:
        ArtifactError: If the checkpoint, the corpus or the data of a task cannot be read.
        TrainingError: If all pairs are unreadable and ``data.unreadable`` skips them.
    """
    built = build(config.model, with_weights=False)
    built.model.load_state_dict(Checkpoints(config.out).load(steps_done)["model"])
    # First: the towers of a step handle padding differently.
    encoder = Encoder(built, device=str(device), precision=_PRECISIONS[config.step.precision])
    tasks = in_memory.open_tasks(config.validation.tasks, TASKS)
    of_tasks = in_memory.evaluate_tasks(tasks, encoders.Ours(encoder))
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
                crop=encoder.preparation.crop,
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
    of_pairs = evaluate_retrieval(
        image_ND,
        text_ND,
        float(towers.logit_scale.exp()),
        ks=[k for k in KS if k <= len(image_ND)],
    )
    return {**of_pairs, **of_tasks}


def describe_scores(epoch: int, scores: Mapping[str, float]) -> str:
    """Return a log line: loss and R@1 of an epoch, from 0, and the first score of each task."""
    first: dict[str, str] = {}
    for name, value in scores.items():
        task, slash, metric = name.partition("/")
        if slash:
            first.setdefault(task, f"; {task} {metric} {value:.1%}")
    return (
        f"epoch {epoch + 1}: val loss {scores['loss']:.3f}, R@1 of {scores['pairs']:,} pairs: "
        f"image to text {scores['image_to_text_recall_at_1']:.1%}, "
        f"text to image {scores['text_to_image_recall_at_1']:.1%}{''.join(first.values())}"
    )
