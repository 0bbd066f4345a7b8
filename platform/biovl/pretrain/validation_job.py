"""Validation during training: a task of Ray per epoch scores its checkpoint, and notes the scores.

Workers ask for it through a queue, together with the lines that they log.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import ray
import ray.exceptions
import torch

from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.core.errors import TrainingError, TrainingStopped
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.scores import note_name
from biovl.pretrain.validation import describe_scores, validate
from biovl.runtime import ray_train
from biovl.runtime.checkpoints import Checkpoints

_LISTEN_S = 0.5


class Listener:
    """Driver side of the message queue: prints the workers' messages, starts validation tasks.

    The driver starts the tasks, since tasks started by a worker die with that worker.
    """

    def __init__(
        self,
        config: PretrainConfig,
        say: Callable[[str], None],
        validated: Callable[[int, Mapping[str, Any]], None],
    ) -> None:
        self._config, self._say, self._validated = config, say, validated
        self._running: dict[int, Any] = {}
        self._failures: dict[int, ray.exceptions.RayError] = {}
        self._closed, self._processing = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._listen, name="listener", daemon=True)
        self.queue = ray_train.create_driver_queue()
        self._thread.start()

    def validate(self, epoch: int, steps_done: int) -> None:
        """Start the validation of an epoch, unless it is running."""
        if epoch not in self._running:
            needs = self._config.validation
            self._failures.pop(epoch, None)
            task = _validate.options(
                num_cpus=needs.cpus,
                num_gpus=needs.gpus,
                # In a trial of Ray Tune, do not use the resources reserved for the trial.
                scheduling_strategy="DEFAULT",
            )
            self._running[epoch] = task.remote(configs.to_plain(self._config), epoch, steps_done)

    def finish(self) -> None:
        """Wait until all messages are printed and all validations succeeded or failed."""
        with self._processing:
            self._process_messages()
            for epoch in sorted(self._running):
                self._report_scores(epoch)

    def raise_failures(self) -> None:
        """Raise the error of an epoch whose last validation attempt failed, if any.

        Raises:
            TrainingStopped: For the first such epoch.
        """
        for epoch, error in sorted(self._failures.items()):
            raise TrainingStopped(
                f"epoch {epoch + 1} could not be validated: {error}\n"
                "Training is complete; run the same command again to validate and publish."
            ) from error

    def close(self) -> None:
        """Drain the queue and shut down."""
        self._closed.set()
        self._thread.join()
        self._process_messages()
        self.queue.shutdown(force=True)

    def _listen(self) -> None:
        while not self._closed.wait(_LISTEN_S):
            with self._processing:
                self._process_messages()

    def _process_messages(self) -> None:
        for kind, *values in ray_train.drain_queue(self.queue):
            if kind == "validate":
                self.validate(*values)
            else:
                self._say(*values)
        for epoch, task in sorted(self._running.items()):
            if ray.wait([task], timeout=0)[0]:
                self._report_scores(epoch)

    def _report_scores(self, epoch: int) -> None:
        task = self._running.pop(epoch)
        try:
            self._say(ray.get(task))
        # Training continues: the checkpoint is kept, and validation is retried at the end.
        except ray.exceptions.RayError as error:
            self._failures[epoch] = error
            reason = str(error).strip().splitlines()[-1]
            self._say(f"epoch {epoch + 1} could not be validated yet: {reason}")
        else:
            self._validated(epoch, Draft(self._config.out).read_note(note_name(epoch)) or {})


@ray.remote
def _validate(plain: dict[str, Any], epoch: int, steps_done: int) -> str:
    """Score the checkpoint of an epoch, note the scores in the draft, and return a log line."""
    config: PretrainConfig = configs.build(PretrainConfig, plain)
    device = torch.device("cuda" if ray.get_gpu_ids() else "cpu")
    scores = scores_of(config, steps_done, device)
    Draft(config.out).note(note_name(epoch), scores)
    return describe_scores(epoch, scores)


def scores_of(config: PretrainConfig, steps_done: int, device: torch.device) -> dict[str, float]:
    """Return ``validate``, of a checkpoint that is still the same afterwards.

    Raises:
        TrainingError: If a rollback has discarded the checkpoint meanwhile, even if there is a new
            one of the same step.
    """
    checkpoints = Checkpoints(config.out)
    before = checkpoints.sha256(steps_done)
    scores = validate(config, steps_done, device)
    if steps_done not in checkpoints.steps() or checkpoints.sha256(steps_done) != before:
        raise TrainingError(f"the checkpoint after step {steps_done} was discarded by a rollback")
    return scores
