"""Fine-tune image towers: one Ray task per draw of training images and learning rate.

PLACE/.draft/
  trained/<training>.json       result of a finished training
  logits/<training>.npy         its predictions on test
PLACE/<training>/.draft/checkpoints/    checkpoints of an unfinished training
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import ray
import torch

from biovl.benchmark import embedding, encoders, few_shot, probe
from biovl.benchmark.datasets import LabelledImages
from biovl.benchmark.few_shot import DrawResult
from biovl.benchmark.fine_tuning import Crops, Tuner
from biovl.benchmark.tasks import EmbeddedBenchmark, LearningRun
from biovl.benchmark.tasks.fine_tune import FineTune, FineTuneRun
from biovl.core.artifacts import Draft
from biovl.core.errors import BiovlError, TrainingError, TrainingStopped
from biovl.core.filesystems import below
from biovl.core.folders import Folder
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.failures import raise_task_error, run_task
from biovl.runtime.training import EpochTraining

Say = Callable[[str], None]


def train(task: FineTune, run: LearningRun, say: Say) -> None:
    """Fine-tune a model on every draw, and store its predictions on test.

    For use within ``connect_ray``. A repeated call resumes from the last checkpoints in
    ``run.place``.

    Raises:
        ConfigError: If a setting is not valid for this model.
        TrainingStopped: If workers have no GPU that PyTorch can use.
    """
    rows = few_shot.readable_rows(run.data, embedding.cached_embeddings("", run.images).image_ND)
    shared = ray.put((task, run))
    tries = task.tries(run.data, rows)
    _run(tries, shared, run, say)
    _run([one for one, _ in _chosen(task, run.place, tries)], shared, run, say)


def stored_results(
    task: FineTune, data: LabelledImages, embedded: EmbeddedBenchmark, place: str
) -> list[DrawResult]:
    """Return the predictions of each draw that ``train`` stored, in the order of the draws.

    Raises:
        BiovlError: If the loss is NaN or Inf for every learning rate.
    """
    rows = few_shot.readable_rows(data, np.asarray(embedded.image_ND))
    draft, found = Draft(place), []
    for training, accuracies in _chosen(task, place, task.tries(data, rows)):
        receipt = draft.read_note(f"trained/{training.name}")
        if receipt is None or receipt["diverged"]:
            raise BiovlError(
                f"the loss of training {training.name} is NaN or Inf: lower tuning.lrs"
            )
        logits = torch.from_numpy(
            np.load(io.BytesIO(draft.folder.read(_logits(training))), allow_pickle=False)
        )
        facts = {key: receipt[key] for key in ("images", "epochs", "loss")}
        tried = {"tried": accuracies} if accuracies else {}
        found.append(
            DrawResult(
                training.draw, logits.softmax(1).numpy(), {"lr": training.lr, **facts, **tried}
            )
        )
    return found


def _chosen(
    task: FineTune, place: str, tries: Sequence[FineTuneRun]
) -> list[tuple[FineTuneRun, dict[str, float]]]:
    draft = Draft(place)
    validated = {one: (draft.read_note(f"trained/{one.name}") or {}).get("val") for one in tries}
    return task.chosen({one: tuple(val) if val else None for one, val in validated.items()})


def _run(trainings: Sequence[FineTuneRun], shared: Any, run: LearningRun, say: Say) -> None:
    """Run the unfinished trainings, as many at a time as there are workers."""
    draft, workers = Draft(run.place), run.workers
    waiting = [one for one in trainings if draft.read_note(f"trained/{one.name}") is None]
    work = ray.remote(num_cpus=workers.cpus, num_gpus=workers.gpus)(_trained)
    running: dict[Any, FineTuneRun] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers.count:
                training = waiting.pop(0)
                running[work.remote(shared, training)] = training
            (ready,), _ = ray.wait(list(running), num_returns=1)
            training = running.pop(ready)
            receipt = raise_task_error(ray.get(ready))
            val = f", {receipt['val'][0]:.1%} of val" if receipt["val"] else ""
            outcome = (
                "the loss is NaN or Inf" if receipt["diverged"] else f"loss {receipt['loss']:.3f}"
            )
            say(f"{training.name}: {outcome}{val}")
    finally:
        for task in running:
            ray.cancel(task)


def _trained(shared: Any, training: FineTuneRun) -> dict[str, Any]:
    """Train in a worker; store the predictions on test and the receipt."""
    task, run = shared
    return run_task(run.place, lambda: _tuned(task, run, training))


def _tuned(task: FineTune, run: LearningRun, training: FineTuneRun) -> dict[str, Any]:
    data, workers, place = run.data, run.workers, run.place
    if workers.gpus and not torch.cuda.is_available():
        # Not of this training alone: the same command resumes where there is a GPU.
        raise TrainingStopped(
            f"workers.gpus={workers.gpus:g}, and PyTorch {torch.__version__} finds no GPU that it "
            "can use: install a build of PyTorch for it, or set workers.gpus=0"
        )
    device, threads = "cuda" if workers.gpus else "cpu", max(1, int(workers.cpus))
    torch.set_num_threads(threads)
    config, vector_ND = task.config.tuning, embedding.cached_embeddings("", run.images).image_ND
    rows = few_shot.readable_rows(data, vector_ND)
    train, val = task.parts(data, rows, training)
    test = rows["test"][:0] if training.held_out else rows["test"]
    model = encoders.load(run.model, device=device)
    used = np.unique(np.concatenate([train, val, test]))
    tuner = Tuner(
        model,
        Crops(model, data.images, used, config.held_bytes, threads),
        data.labels,
        len(data.classes),
        train,
        probe.Scaling.of(vector_ND[train]),
        config,
        lr=training.lr,
        seed=training.draw.seed,
        device=device,
        precision=run.precision,
    )
    draft, receipt = Draft(place), f"trained/{training.name}"
    loss = _learn(tuner.training, below(place, training.name), config.save_every_s)
    found: dict[str, Any] = {"images": len(train), "epochs": tuner.training.epochs, "val": None}
    if loss is not None:
        if len(val):
            found["val"] = probe.accuracy_and_likelihood(tuner.predict(val), data.labels[val])
        stream = io.BytesIO()
        np.save(stream, tuner.predict(test), allow_pickle=False)
        draft.folder.write(_logits(training), stream.getvalue())
    draft.note(receipt, {**found, "loss": loss, "diverged": loss is None})
    Folder(below(place, training.name)).delete_folder(".draft")
    stored: dict[str, Any] = draft.read_note(receipt) or {}
    return stored


def _learn(training: EpochTraining, place: str, save_every_s: float) -> float | None:
    """Train from the last checkpoint to the last epoch; return the loss, None if NaN or Inf."""
    checkpoints = Checkpoints(place)
    state = checkpoints.load_last()
    if state is not None:
        training.load(state)
    try:
        losses = list(training.remaining(checkpoints, save_every_s=save_every_s))
    except TrainingError:
        return None
    return losses[-1] if losses else 0.0


def _logits(training: FineTuneRun) -> str:
    return f".draft/logits/{training.name}.npy"
