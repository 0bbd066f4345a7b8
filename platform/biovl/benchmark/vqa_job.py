"""Train a model for visual question answering with Ray Train, and collect its answers.

Checkpoints are written to a draft at intervals; a run whose worker or driver failed resumes from
them. The trained weights are deleted once the answers are stored.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import ray
import ray.exceptions
import ray.train
import ray.train.torch

from biovl.benchmark.config import BenchmarkWorkers
from biovl.benchmark.datasets import Questions
from biovl.benchmark.fusion.config import LearningConfig
from biovl.benchmark.fusion.learning import Learner
from biovl.benchmark.fusion.loading import open_encoder
from biovl.benchmark.tasks.vqa import VQAAnswers
from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.core.errors import ConfigError, TrainingError
from biovl.runtime import ray_train
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.failures import raise_task_error, run_task
from biovl.runtime.workers import Workers

_ANSWERED = "answered"
_LISTEN_S = 0.5


def train(
    data: Questions,
    model: str,
    learning: LearningConfig,
    workers: BenchmarkWorkers,
    place: str,
    say: Callable[[str], None],
) -> VQAAnswers:
    """Train a model on the split train, and return its answers to the questions of val and test.

    For use within ``connect_ray``. A repeated call resumes from the last checkpoint in ``place``,
    or returns the answers stored there; ``place`` is not published.

    Args:
        data: Questions; pickled to the workers, which read the images.
        model: A folder in open_clip's layout.
        learning: Settings of the training.
        workers: Number and resources of the workers.
        place: A folder for this run only, local or ``s3://``; its draft contains the checkpoints.
        say: Callback for progress messages.

    Raises:
        ConfigError: If a setting is not valid for this model, or a tower does not give token
            features.
        TrainingError: If the workers failed too often.
    """
    draft = Draft(place)
    if draft.read_note(_ANSWERED) is None:
        with _listening(say) as queue:
            _fit(data, model, learning, workers, place, queue)
    return answers(place)


def answers(place: str) -> VQAAnswers:
    """Return the answers that ``train`` stored in a folder."""
    return VQAAnswers(**(Draft(place).read_note(_ANSWERED) or {}))


def _fit(
    data: Questions,
    model: str,
    learning: LearningConfig,
    workers: BenchmarkWorkers,
    place: str,
    queue: Any,
) -> None:
    said = ray_train.fit(
        _work,
        {
            "data": data,
            "model": model,
            "learning": configs.to_plain(learning),
            "place": place,
            "queue": queue,
        },
        place=place,
        bounds=(workers.count, workers.count),
        cpus=workers.cpus,
        gpus=workers.gpus,
    )
    raise_task_error(said)


def _work(arguments: dict[str, Any]) -> dict[str, Any]:
    """Training function of a Ray Train worker."""
    try:
        _learn(_learner(arguments), arguments)
    # All workers raise it together, and would again: Ray shall not start them anew.
    except (ConfigError, TrainingError) as error:
        wrong = error

        def fail() -> dict[str, Any]:
            raise wrong

        return run_task(arguments["place"], fail)
    return {}


def _learner(arguments: dict[str, Any]) -> Learner:
    device = ray.train.torch.get_device()
    return Learner(
        open_encoder(arguments["model"], device=str(device)),
        arguments["data"],
        configs.build(LearningConfig, arguments["learning"]),
        device=device,
        group=Workers.current(),
    )


def _learn(learner: Learner, arguments: dict[str, Any]) -> None:
    """Train from the last checkpoint to the last epoch, predict, and store the answers."""
    place, queue, data = arguments["place"], arguments["queue"], arguments["data"]
    epochs: int = arguments["learning"]["epochs"]
    is_first = Workers.current().rank == 0

    def say(line: str) -> None:
        # What is only told is no reason to end a run.
        with contextlib.suppress(ray.exceptions.RayActorError):
            if is_first:
                queue.put(line)

    draft, checkpoints, training = Draft(place), Checkpoints(place), learner.training
    workers, device = Workers.current(), ray.train.torch.get_device()
    state = workers.broadcast(lambda: checkpoints.load_last(say), device)
    if state is not None:
        workers.together(lambda: training.load(state), device)
        say(f"resumes after epoch {training.epochs_done} of {epochs}")
    losses = draft.read_note("losses") or {}
    said, save_every_s = time.monotonic(), arguments["learning"]["save_every_s"]
    for loss in training.remaining(checkpoints, save_every_s=save_every_s, saves=is_first):
        done, now = training.epochs_done, time.monotonic()
        losses[str(done)] = loss
        if is_first:
            draft.note("losses", losses)
        if now - said > 2 or done == epochs:
            said = now
            say(f"epoch {done}/{epochs}, loss {loss:.3f}")
    can_be_asked = ~np.isin(data.image_of, list(learner.unreadable))
    rows = np.flatnonzero(can_be_asked & np.isin(data.splits, ("val", "test")))
    index, probability = learner.predict(rows)
    if is_first:
        answered = VQAAnswers(
            rows=rows.tolist(),
            predicted=[learner.answers[number] for number in index],
            probability=probability.tolist(),
            classes=list(learner.answers),
            unreadable={str(image): why for image, why in sorted(learner.unreadable.items())},
            losses=[losses[str(epoch + 1)] for epoch in range(epochs)],
        )
        draft.note(_ANSWERED, asdict(answered))


@contextlib.contextmanager
def _listening(say: Callable[[str], None]) -> Iterator[Any]:
    """Yield a Ray queue for messages of workers, and pass them to ``say``."""
    queue = ray_train.create_driver_queue()
    over = threading.Event()

    def hear() -> None:
        with contextlib.suppress(ray.exceptions.RayActorError):
            for line in ray_train.drain_queue(queue):
                say(line)

    def listen() -> None:
        while not over.wait(_LISTEN_S):
            hear()

    thread = threading.Thread(target=listen, name="listener", daemon=True)
    thread.start()
    try:
        yield queue
    finally:
        over.set()
        thread.join()
        hear()
        queue.shutdown(force=True)
