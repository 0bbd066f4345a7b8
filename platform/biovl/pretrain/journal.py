"""The log of a run: every step, for ``metrics.jsonl`` and the trackers."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.core.filesystems import open_location
from biovl.core.folders import Folder
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.schedule import Plan
from biovl.pretrain.scores import note_name, read_scores
from biovl.pretrain.step_time import Seconds, busy_s
from biovl.pretrain.trackers import METRICS, Tracker, make_trackers, run_ids

_NOTE = "trackers"
_TOLD = "told"


class Journal:
    """Logs the metrics of a run to its trackers, which write to the run's folder.

    If that is in a bucket, they write to a temporary local folder, which is uploaded.

    Args:
        config: Configuration of the run.
        steps_done: Steps completed; records of later steps are discarded.
    """

    def __init__(self, config: PretrainConfig, steps_done: int) -> None:
        self._draft = Draft(config.out)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        filesystem, path = open_location(config.out)
        if isinstance(filesystem, pafs.LocalFileSystem):
            self._folder = Path(path)
        else:
            self._temporary = tempfile.TemporaryDirectory()
            self._folder = Path(self._temporary.name)
            _fetch(self._draft.folder, self._folder)
        self._trackers: dict[str, Tracker] = make_trackers(
            config.trackers,
            self._folder,
            path.rpartition("/")[2],
            configs.to_plain(config),
            first_step=steps_done + 1,
            run_ids=self._draft.read_note(_NOTE),
        )
        self._draft.note(_NOTE, run_ids(self._trackers))
        self._purged = {
            epoch for epoch, step in _read_logged(self._draft).items() if step > steps_done
        }
        """Epochs whose scores TensorBoard discards with the steps that are repeated; W&B and MLflow
        keep theirs."""

    def add(self, record: dict[str, Any]) -> None:
        """Log the metrics of a step."""
        for tracker in self._trackers.values():
            tracker.log(record["step"], record)

    def add_ranks(self, step: int, by_rank: Sequence[Seconds]) -> None:
        """Log to TensorBoard each worker's seconds per step: waiting for data, and busy."""
        tensorboard = self._trackers.get("tensorboard")
        if tensorboard is None or len(by_rank) == 1:
            return
        values = {f"rank/{rank}/wait_s": each["data"] for rank, each in enumerate(by_rank)}
        values |= {f"rank/{rank}/busy_s": busy_s(each) for rank, each in enumerate(by_rank)}
        tensorboard.log(step, values)

    def add_scores(self, steps_done: int) -> None:
        """Log the scores of the epochs that were validated since the last call."""
        logged, scores = _read_logged(self._draft), read_scores(self._draft)
        new = scores.keys() - logged.keys()
        again = scores.keys() & self._purged
        for epoch in sorted(new | again):
            values = {f"val/{name}": value for name, value in scores[epoch].items()}
            for name, tracker in self._trackers.items():
                # The rows of metrics.jsonl are steps; validation.json has the scores.
                if name != "metrics" and (epoch in new or name == "tensorboard"):
                    tracker.log(steps_done, {"val/epoch": epoch + 1, **values})
        if new | again:
            self._draft.note(_TOLD, {**logged, **dict.fromkeys(sorted(new | again), steps_done)})
        self._purged -= again

    def upload(self) -> None:
        """Upload the files, if the output folder is a bucket."""
        if self._temporary is None:
            return
        for path in sorted(self._folder.rglob("*")):
            if path.is_file():
                self._draft.folder.write(
                    path.relative_to(self._folder).as_posix(), path.read_bytes()
                )

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        for tracker in self._trackers.values():
            tracker.close()
        self.upload()
        if self._temporary is not None:
            self._temporary.cleanup()


def discard_scores(draft: Draft, plan: Plan, *, after: int) -> None:
    """Delete the scores of epochs that end after a number of steps, since these are repeated."""
    later = {epoch for epoch, end in enumerate(plan.ends()) if end > after}
    for epoch in later & read_scores(draft).keys():
        draft.delete_note(note_name(epoch))
    logged = _read_logged(draft)
    draft.note(_TOLD, {epoch: step for epoch, step in logged.items() if epoch not in later})


def _read_logged(draft: Draft) -> dict[int, int]:
    """Return the step at which the scores of each epoch were logged."""
    noted = draft.read_note(_TOLD) or {}
    # Earlier versions noted the epochs alone.
    by_epoch = noted if isinstance(noted, dict) else dict.fromkeys(noted, 0)
    return {int(epoch): step for epoch, step in by_epoch.items()}


def _fetch(folder: Folder, to: Path) -> None:
    """Download the files of an earlier attempt, so that new records are appended."""
    (to / "tensorboard").mkdir()
    names = [METRICS] if folder.exists(METRICS) else []
    names += [f"tensorboard/{name}" for name in folder.names("tensorboard")]
    for name in names:
        (to / name).write_bytes(folder.read(name))
