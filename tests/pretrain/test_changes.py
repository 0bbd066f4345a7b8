"""Settings of a run that change when it resumes: which may, and how it is recorded."""

from pathlib import Path
from typing import Any

import pytest

from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError
from biovl.pretrain.changes import may_resume, read_changes, read_settings, record_changes
from biovl.pretrain.config import PretrainConfig, identity
from biovl.pretrain.fork import advise_fork
from biovl.pretrain.schedule import Plan, learning_rate
from biovl.pretrain.scores import best_epoch, note_name, read_scores
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.job import Job


def config(out: Path, **changes: Any) -> PretrainConfig:
    values = {"corpus": "c", "out": str(out), "model": "open_clip", "epochs": 3, "batch.pairs": 4}
    return configs.build(PretrainConfig, {**values, **changes})


def plan_of(epochs: int) -> Plan:
    return Plan([(4, 4)] * epochs)


def start(config: PretrainConfig, *, steps: tuple[int, ...] = ()) -> list[str]:
    """Start a run as the job does, save checkpoints after some steps, and return its log."""
    what, _ = identity(configs.to_plain(config))
    job = Job(
        out=config.out,
        kind="model",
        config=what,
        defaults=configs.defaults(PretrainConfig),
    )
    with advise_fork(config.out):
        before = read_settings(config.out)
        with job.begin(accepts=lambda draft, changed: may_resume(draft, config)) as draft:
            lines = record_changes(draft, before, config, plan_of)
            checkpoints = Checkpoints(config.out, keep_last=9)
            for step in steps:
                checkpoints.save({"steps_done": step})
                checkpoints.wait()
    return lines


def test_what_changed_is_recorded_with_the_step(tmp_path: Path) -> None:
    start(config(tmp_path), steps=(4, 6))
    assert start(config(tmp_path)) == []
    start(config(tmp_path, **{"save.keep_last": 5, "trouble.diverged": None}), steps=(7,))
    (line,) = start(config(tmp_path, **{"save.keep_last": 5, "validation.every_epochs": 2}))
    assert "step 7" in line
    assert read_changes(Draft(str(tmp_path))) == [
        {"step": 6, "setting": "save.keep_last", "before": 2, "after": 5},
        {"step": 6, "setting": "trouble.diverged", "before": 0.25, "after": None},
        {"step": 7, "setting": "trouble.diverged", "before": None, "after": 0.25},
        {"step": 7, "setting": "validation.every_epochs", "before": 1, "after": 2},
    ]


def test_more_epochs_are_accepted_with_what_they_do_to_the_learning_rate(tmp_path: Path) -> None:
    short = config(tmp_path, **{"optim.warmup_steps": 2})
    start(short, steps=(6,))
    _, line = start(config(tmp_path, **{"optim.warmup_steps": 2, "epochs": 6}))
    rates = [learning_rate(short.optim, plan_of(n), plan_of(n).place(6)) for n in (3, 6)]
    assert all(f"{rate:.3g}" in line for rate in rates)
    begun = Draft(str(tmp_path)).read_note("begun")
    assert begun is not None
    assert begun["config"]["epochs"] == 6


def test_more_epochs_of_a_run_whose_steps_are_done_are_accepted(tmp_path: Path) -> None:
    start(config(tmp_path), steps=(12,))
    assert len(start(config(tmp_path, epochs=4))) == 2


def test_more_epochs_change_nothing_of_a_constant_rate(tmp_path: Path) -> None:
    constant = {"optim.schedule": "constant", "optim.warmup_steps": 2}
    start(config(tmp_path, **constant), steps=(6,))
    _, line = start(config(tmp_path, epochs=4, **constant))
    assert "stays 0.0005" in line


@pytest.mark.parametrize("changes", [{"epochs": 2}, {"optim.peak_lr": 1e-4}, {"seed": 1}])
def test_what_another_run_would_need_is_refused_with_the_way_to_fork(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    start(config(tmp_path), steps=(4, 6))
    with pytest.raises(ArtifactError, match=rf"--set from={tmp_path}@6"):
        start(config(tmp_path, **changes))
    assert read_changes(Draft(str(tmp_path))) == []


def test_before_the_first_checkpoint_nothing_is_recorded(tmp_path: Path) -> None:
    start(config(tmp_path))
    assert start(config(tmp_path, **{"save.keep_last": 5, "epochs": 9})) == []
    assert read_changes(Draft(str(tmp_path))) == []


def test_a_draft_of_an_earlier_version_has_no_settings_that_may_change(tmp_path: Path) -> None:
    start(config(tmp_path, **{"save.keep_last": 7}), steps=(4,))
    Draft(str(tmp_path)).delete_note("settings")
    (line, _) = start(config(tmp_path, epochs=4))
    assert "epochs 3 -> 4" in line
    assert [each["setting"] for each in read_changes(Draft(str(tmp_path)))] == ["epochs"]


def test_no_password_of_a_tracker_is_recorded(tmp_path: Path) -> None:
    secret = "http://me:secret@host"
    start(config(tmp_path), steps=(4,))
    start(config(tmp_path, trackers=[{"name": "mlflow", "tracking_uri": secret}]))
    draft = Draft(str(tmp_path))
    (change,) = read_changes(draft)
    assert (change["before"], change["after"]) == (["tensorboard"], ["mlflow"])
    assert "secret" not in str(draft.read_note("settings"))


def test_scores_among_other_pairs_are_made_again_where_they_can_be(tmp_path: Path) -> None:
    start(config(tmp_path), steps=(8, 12))
    draft = Draft(str(tmp_path))
    recalls = {"image_to_text_recall_at_1": 0.5, "text_to_image_recall_at_1": 0.5}
    for epoch in range(3):
        draft.note(note_name(epoch), {**recalls, "pairs": 100})
    start(config(tmp_path, **{"validation.pairs": 1_000}))
    # The checkpoint of the first epoch is deleted: its scores remain for the card.
    assert read_scores(draft).keys() == {0}


def test_the_best_epoch_is_one_of_those_scored_among_as_many_pairs() -> None:
    def scores(recall: float, pairs: int) -> dict[str, float]:
        names = ("image_to_text_recall_at_1", "text_to_image_recall_at_1")
        return {**dict.fromkeys(names, recall), "pairs": pairs}

    assert best_epoch({0: scores(0.9, 100), 1: scores(0.3, 999), 2: scores(0.2, 999)}) == 1
    # A pair could not be read once.
    assert best_epoch({0: scores(0.9, 10_000), 1: scores(0.3, 9_999)}) == 0
