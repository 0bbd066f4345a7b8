"""A sweep as a whole: it finds what is better, and what dies or fails costs no other trial."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.util.placement_group import placement_group, placement_group_table

from biovl.assemble import config as assemble_config
from biovl.assemble.config import AssembleConfig
from biovl.assemble.job import assemble
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest
from biovl.harvest.config import HarvestConfig
from biovl.harvest.job import harvest
from biovl.pretrain.trackers import read_metrics
from biovl.sweep import job as sweeps
from biovl.sweep.config import SweepConfig
from biovl.sweep.job import at_once, sweep
from biovl.sweep.trials import trials_of
from tests.runtime.typed import run_command, with_this_ray
from tests.sweep.long_captions import make_long_captions

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray

# Epochs of ten steps, on one CPU of two. Four patches tell where the disc is.
BASE = {
    "recipe": "tiny",
    "model.image_size": 32,
    "model.vision_cfg.layers": 2,
    "model.text_cfg.layers": 1,
    "epochs": 10,
    "optim.schedule": "constant",
    "validation.every_epochs": 5,
    "trackers": [],
}


@pytest.fixture(scope="module")
def corpus(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    table = make_long_captions(folder / "table", figures=400)
    source = {"name": "table", "path": str(table)}
    harvest(configs.build(HarvestConfig, {"source": source, "out": str(folder / "figures")}))
    settings = {
        **configs.recipe_settings(assemble_config.small()),
        "split.test_permyriad": 0,
        "figures": str(folder / "figures"),
        "out": str(folder / "corpus"),
    }
    assemble(configs.build(AssembleConfig, settings))
    return folder / "corpus"


def config(corpus: Path, out: Path, **changes: Any) -> SweepConfig:
    base = {**BASE, **changes.pop("base", {})}
    return configs.build(
        SweepConfig, {"corpus": str(corpus), "out": str(out), "base": base, **changes}
    )


def statuses(manifest: Manifest) -> list[str]:
    found = manifest.notes["outcomes"]
    return [found[name]["status"] for name in sorted(found)]


def test_the_sweep_finds_that_longer_context_wins_where_only_later_text_tells_figures_apart(
    corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    manifest = sweep(config(corpus, out, **{"grid.model.context_length": [77, 160]}))
    assert statuses(manifest) == ["finished", "finished"]
    assert manifest.notes["best"] == "01-context-length-160-seed-0"
    with (out / "trials.csv").open() as stream:
        short, long = csv.DictReader(stream)
    chance = 1 / int(long["pairs"])
    assert float(short["mean_recall_at_1"]) < 3 * chance
    assert float(long["mean_recall_at_1"]) > 6 * chance
    # What it is for: the captions' last fifth is what 77 tokens do not reach.
    assert float(short["tokens_cut"]) > 0.2
    assert float(long["tokens_cut"]) < 0.02
    assert {path.name for path in (out / "plots").iterdir()} >= {"context.png", "tokens.png"}
    assert not (out / ".draft").exists()


def test_a_killed_sweep_repeats_no_trial_that_is_over_and_goes_on_with_the_others(
    corpus: Path, tmp_path: Path
) -> None:
    # By epoch 3 the first finds some; what is behind then is stopped, and stays so. What failed is
    # tried again.
    changes = {"epochs": 6, "validation.every_epochs": 3, "model.context_length": 160}
    command = [sys.executable, str(ROOT / "tune" / "sweep.py"), "grid"]
    given = {
        "corpus": str(corpus),
        # As a user types it: relative to where the command is run.
        "out": "sweep",
        **{f"base.{name}": value for name, value in {**BASE, **changes}.items()},
        "base.save.every_steps": 5,
        "grid.optim.peak_lr": [1e-3, 1e-9, 1e30, 1e-8],
        **{"asha.reduction": 2, "asha.first_epochs": 3},
    }
    for name, value in given.items():
        text = str(value) if isinstance(value, str) else json.dumps(value)
        command += ["--set", f"{name}={text}"]
    trials = tmp_path / "sweep" / "trials"
    with (tmp_path / "first.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=with_this_ray(), cwd=tmp_path
        )
        killer = threading.Thread(target=_kill_once, args=(process, trials, "03-*"))
        killer.start()
        assert process.wait() == -signal.SIGKILL, (tmp_path / "first.log").read_text()
        killer.join()
    (first_model,) = trials.glob("00-*/manifest.json")
    (resumed,) = trials.glob("03-*")
    over = first_model.stat().st_mtime_ns
    (*_, checkpoint) = sorted((resumed / ".draft" / "checkpoints").glob("*.pt"))
    last = int(checkpoint.stem)
    rows = [row for row in read_metrics(resumed / "metrics.jsonl") if row["step"] <= last]
    # The session's Ray was started in another folder.
    given["out"] = str(tmp_path / "sweep")
    done = run_command("tune/sweep.py", "grid", **given)
    assert done["trials"] == {"total": 4, "finished": 1, "stopped early": 2, "failed": 1}
    assert first_model.stat().st_mtime_ns == over
    # Rows hold times: those before the checkpoint are the first process' own.
    again = read_metrics(resumed / "metrics.jsonl")
    assert rows == [row for row in again if row["step"] <= last]
    readme = (tmp_path / "sweep" / "README.md").read_text()
    assert "stopped early" in readme
    published = (tmp_path / "sweep" / "manifest.json").stat().st_mtime_ns
    assert run_command("tune/sweep.py", "grid", **given) == done
    assert (tmp_path / "sweep" / "manifest.json").stat().st_mtime_ns == published


def test_an_interrupted_sweep_is_not_published_and_keeps_its_checkpoints(
    corpus: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base = {"epochs": 500, "save.every_steps": 1, "workers.count": 0}
    checkpoints, ended = "trials/*/.draft/checkpoints/*.pt", threading.Event()

    def interrupt() -> None:
        while not ended.wait(0.05):
            if any(tmp_path.glob(checkpoints)):
                os.kill(os.getpid(), signal.SIGINT)
                return

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            sweep(config(corpus, tmp_path, base=base, seeds=2, concurrent=1))
    finally:
        ended.set()
        interrupter.join()
    assert not (tmp_path / "manifest.json").exists()
    assert any(tmp_path.glob(checkpoints))
    # Tune's own way to resume is not the sweep's.
    assert "Tuner.restore" not in capfd.readouterr().err


def test_workers_of_a_trial_that_died_are_released(
    ray_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "_GIVE_BACK_S", 0.0)
    out = str(tmp_path / "trial")
    reserved = placement_group([{"CPU": 0.1}])
    assert reserved.wait(60)
    # As the first worker of a trial does.
    Draft(out).note("reserved", reserved.id.hex())
    trial = SimpleNamespace(config={"trial": {"name": "trial", "config": {"out": out}}})
    sweeps._Endings(str(tmp_path)).on_trial_recover(0, [], trial)
    deadline = time.monotonic() + 60
    while placement_group_table(reserved)["state"] != "REMOVED":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _kill_once(process: "subprocess.Popen[bytes]", trials: Path, name: str) -> None:
    """Kill -9 a driver when a trial has a checkpoint."""
    while process.poll() is None:
        if any(trials.glob(f"{name}/.draft/checkpoints/*.pt")):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            return
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("there", "expected"),
    [({"CPU": 2.0}, 1), ({"CPU": 4.0}, 2), ({"CPU": 1.0}, 1), ({"CPU": 64.0, "GPU": 8.0}, 32)],
)
def test_as_many_trials_run_as_leave_a_cpu_for_the_data_of_each(
    corpus: Path, there: dict[str, float], expected: int
) -> None:
    assert at_once(trials_of(config(corpus, Path("sweep"))), there) == expected


def test_gpus_limit_trials_where_they_take_them(corpus: Path) -> None:
    trials = trials_of(config(corpus, Path("sweep"), base={"workers": {"count": 4, "gpus": 1}}))
    assert at_once(trials, {"CPU": 64.0, "GPU": 8.0}) == 2
