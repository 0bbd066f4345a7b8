"""Batches without Ray: read, decoded and tokenized in the training process."""

from collections.abc import Generator

from biovl.models.builders.open_clip import Built
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.mixture import find_teacher, read_mixture, read_training
from biovl.pretrain.order import epoch_order
from biovl.pretrain.pairs import load_pairs
from biovl.pretrain.schedule import Plan
from biovl.runtime.workers import Workers, share


def local_batches(
    config: PretrainConfig, plan: Plan, built: Built, steps_done: int, workers: Workers
) -> Generator[Batch]:
    """Yield a worker's batches from a number of completed steps to the end of the run.

    Raises:
        ArtifactError: If a pair is unreadable and no other may replace it.
    """
    places = read_training(config, read_mixture(config))
    teacher = find_teacher(config.step.distill, config.corpora)
    order, ordered_epoch = None, -1
    for number in range(steps_done, plan.steps):
        place = plan.place(number)
        if order is None or place.epoch != ordered_epoch:
            ordered_epoch = place.epoch
            order = epoch_order(
                places, seed=config.seed, epoch=place.epoch, run_pairs=config.data.run_pairs
            )
        own = share(place.batch_pairs, workers.rank, workers.count)
        loaded = load_pairs(
            places,
            order[place.step * place.batch_pairs :][own.start : own.stop],
            seed=config.seed,
            epoch=place.epoch,
            image_px=built.image_size,
            data=config.data,
            tokenizer=built.tokenizer,
            teacher=teacher,
        )
        yield Batch.of(loaded.pixels_BHWC, loaded.tokens, loaded.teacher_B2E)
