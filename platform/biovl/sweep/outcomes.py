"""Outcome of a trial, read from its folder: published, stopped early, or failed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from biovl.benchmark.retrieval import mean_recall_at_1
from biovl.core.artifacts import Draft, find_manifest
from biovl.core.folders import Folder
from biovl.pretrain.scores import read_scores
from biovl.pretrain.trackers import seconds_of_steps
from biovl.sweep.trials import Trial

FINISHED, STOPPED, FAILED = "finished", "stopped early", "failed"


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """Result of a trial, read from its folder."""

    trial: Trial
    status: str
    reason: str
    """Reason of a failure; otherwise empty."""

    scores: Mapping[int, Mapping[str, Any]]
    """Scores of every validated epoch, from 0."""

    epoch: int | None
    """Epoch whose scores are compared, from 0: the published one, or the last of a stopped
    trial."""

    seconds: float | None
    """Total seconds of the trial's steps; None without steps."""

    warnings: tuple[str, ...] = ()
    """Warnings of a published trial; see ``Manifest.warnings``."""

    @property
    def final(self) -> Mapping[str, Any]:
        """Scores of ``epoch``, by which trials are compared; empty if there are none."""
        return {} if self.epoch is None else self.scores[self.epoch]

    @property
    def mean_recall(self) -> float | None:
        """R@1 averaged over both directions, by which trials are ranked; None without scores."""
        return mean_recall_at_1(dict(self.final)) if self.final else None


def scores_of(uri: str) -> dict[int, dict[str, Any]]:
    """Return the scores of a run's validated epochs, by epoch from 0, published or not."""
    if find_manifest(uri) is None:
        return read_scores(Draft(uri))
    found = json.loads(Folder(uri).read("validation.json"))
    return {int(epoch) - 1: scores for epoch, scores in found.items()}


def outcome_of(trial: Trial, ended: Mapping[str, str]) -> TrialOutcome:
    """Return the result of a trial that has ended.

    Args:
        trial: A trial that has ended.
        ended: Status and reason recorded by the sweep, by trial; ignored for a published trial.
    """
    uri = trial.config.out
    manifest = find_manifest(uri)
    scores = scores_of(uri)
    if manifest is not None:
        epoch: int | None = manifest.notes["published_epoch"] - 1
        status, reason = FINISHED, ""
    else:
        status, reason = ended["status"], ended["reason"]
        epoch = max(scores, default=None)
    return TrialOutcome(
        trial=trial,
        status=status,
        reason=reason,
        scores=scores,
        epoch=epoch if epoch in scores else None,
        seconds=seconds_of_steps(Folder(uri)),
        warnings=() if manifest is None else tuple(manifest.warnings),
    )
