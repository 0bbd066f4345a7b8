"""Pretraining as a whole: what it publishes, and that nothing that dies costs more than a step."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import pyarrow.parquet as pq
import pytest
import ray
import torch
from PIL import Image

from biovl.core import config as configs
from biovl.core.artifacts import Manifest
from biovl.core.errors import ArtifactError, ConfigError, TrainingError
from biovl.core.leases import acquire_lease
from biovl.core.shards import read_pair
from biovl.models import encoder
from biovl.pretrain import config as pretrain_config
from biovl.pretrain import job as pretraining
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.job import check_resources, dry_run_text, pretrain
from biovl.pretrain.trackers import read_metrics
from tests.runtime.folders import nothing_done_to
from tests.runtime.interrupting import killing, process_of
from tests.runtime.typed import with_this_ray

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.ray


def settings(corpus: Path, out: Path, **changes: Any) -> dict[str, Any]:
    """Two steps in an epoch, a checkpoint after each, room for two workers on two CPUs."""
    return {
        **configs.recipe_settings(pretrain_config.tiny()),
        "epochs": 3,
        "deterministic": True,
        "save.every_steps": 1,
        "validation.every_epochs": 2,
        "workers.cpus": 0.5,
        "corpus": str(corpus),
        "out": str(out),
        **changes,
    }


def run(corpus: Path, out: Path, **changes: Any) -> Manifest:
    return pretrain(
        configs.build(PretrainConfig, settings(corpus, out, **changes)), progress=sys.stderr
    )


@pytest.fixture(scope="module")
def undisturbed(sample_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "model"
    # Other runs do not profile, and end in the same weights.
    run(sample_corpus, out, profile=1)
    return out


def weights(out: Path) -> bytes:
    return (out / "open_clip_model.safetensors").read_bytes()


def losses(out: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in read_metrics(out / "metrics.jsonl")]


def pictures(corpus: Path, count: int = 3) -> tuple[list[bytes], list[str]]:
    rows = pq.read_table(corpus / "index.parquet").to_pylist()[:count]
    pairs = [read_pair(str(corpus / r["shard"]), r["offset"], r["size"]) for r in rows]
    images = [next(data for kind, data in pair.items() if kind in ("jpg", "png")) for pair in pairs]
    return images, [pair["txt"].decode() for pair in pairs]


def test_the_published_folder_says_how_it_came_about(
    undisturbed: Path, sample_corpus: Path
) -> None:
    manifest = json.loads((undisturbed / "manifest.json").read_text())
    assert manifest["kind"] == "model"
    assert manifest["counts"]["steps"] == len(losses(undisturbed)) == 6
    assert manifest["inputs"][0]["name"] == "corpus"
    assert manifest["notes"]["validation"]["pairs"] == manifest["counts"]["pairs"]["val"]
    assert json.loads((undisturbed / "validation.json").read_text()).keys() == {"2", "3"}
    assert {path.name for path in (undisturbed / "plots").iterdir()} >= {"loss.png", "recall.png"}
    assert "CC-BY-4.0" in (undisturbed / "README.md").read_text()
    assert any((undisturbed / "tensorboard").iterdir())
    assert os.listdir(undisturbed / "profile") == ["steps-000006-000006.json.gz"]
    assert not (undisturbed / ".draft").exists()


def test_stock_open_clip_loads_the_model_and_embeds_as_we_do(
    undisturbed: Path, sample_corpus: Path
) -> None:
    images, texts = pictures(sample_corpus)
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{undisturbed}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{undisturbed}")
    model.eval()
    ours = encoder.load(str(undisturbed))
    with torch.no_grad():
        pixels = torch.stack([preprocess(Image.open(io.BytesIO(data))) for data in images])
        image_ND = model.encode_image(pixels, normalize=True)
        text_ND = model.encode_text(tokenizer(texts), normalize=True)
    torch.testing.assert_close(torch.from_numpy(ours.embed_images(images)), image_ND)
    torch.testing.assert_close(torch.from_numpy(ours.embed_texts(texts)), text_ND)


def test_a_finished_run_is_not_repeated(undisturbed: Path, sample_corpus: Path) -> None:
    with nothing_done_to(undisturbed):
        manifest = run(sample_corpus, undisturbed)
    assert manifest.counts["steps"] == 6


def test_another_configuration_is_refused_with_what_differs(
    undisturbed: Path, sample_corpus: Path
) -> None:
    with pytest.raises(ArtifactError, match=r"config\.optim\.peak_lr: 0\.001 -> 0\.5"):
        run(sample_corpus, undisturbed, **{"optim.peak_lr": 0.5})
    # Where and how it is computed is no other run.
    assert run(sample_corpus, undisturbed, **{"workers.count": 2, "step.micro_batch": 8})


TRIES = 5
"""Runs until one was killed before it was over."""


def checkpoints(out: Path) -> list[str]:
    return sorted(path.name for path in (out / ".draft" / "checkpoints").glob("*.pt"))


def process_when_saved(name: str, out: Path) -> Callable[[], int | None]:
    """Return what gives the process of a name once a run has a checkpoint.

    It is looked for before there is one: after the first, all steps may take less than a second.
    """
    process: int | None = None

    def ready() -> int | None:
        nonlocal process
        if process is None or not Path(f"/proc/{process}").exists():
            process = process_of(name)
        return process if checkpoints(out) else None

    return ready


def test_a_killed_worker_costs_nothing_but_time(
    undisturbed: Path, sample_corpus: Path, tmp_path: Path
) -> None:
    for attempt in range(TRIES):
        out = tmp_path / f"model-{attempt}"
        with killing(process_when_saved("RayTrainWorker", out)) as killed:
            run(sample_corpus, out, **{"workers.count": 1})
        if killed:
            break
    assert killed, f"no worker was found in {TRIES} runs"
    # A worker computes the same bytes as the job's own process.
    assert weights(out) == weights(undisturbed)
    # Each step once, in order: nothing was lost, and nothing seen twice.
    assert losses(out) == losses(undisturbed)


def test_a_killed_driver_goes_on_with_the_same_command(
    undisturbed: Path, sample_corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    of_recipe = configs.recipe_settings(pretrain_config.tiny())
    changes = {k: v for k, v in settings(sample_corpus, out).items() if of_recipe.get(k) != v}
    # As a user types it: relative to where the command is run.
    changes["out"] = "model"
    command = [sys.executable, str(ROOT / "pipelines" / "pretrain.py"), "tiny"]
    for name, value in changes.items():
        text = json.dumps(value) if isinstance(value, bool) else str(value)
        command += ["--set", f"{name}={text}"]
    with (tmp_path / "first.log").open("wb") as log:
        first = subprocess.Popen(command, stdout=log, stderr=log, env=with_this_ray(), cwd=tmp_path)
        with killing(lambda: first.pid if checkpoints(out) else None):
            assert first.wait() == -signal.SIGKILL, (tmp_path / "first.log").read_text()
    assert not (out / "manifest.json").exists()
    last = int(checkpoints(out)[-1].removesuffix(".pt"))
    before = [row for row in read_metrics(out / "metrics.jsonl") if row["step"] <= last]
    assert before
    run(sample_corpus, out)
    # Rows hold times: those before the checkpoint are the first process' own.
    assert [row for row in read_metrics(out / "metrics.jsonl") if row["step"] <= last] == before
    assert weights(out) == weights(undisturbed)
    assert losses(out) == losses(undisturbed)


def test_two_workers_take_the_steps_of_one(
    undisturbed: Path, sample_corpus: Path, tmp_path: Path
) -> None:
    # As many as there is room for, which is two.
    run(sample_corpus, tmp_path / "model", **{"workers.count": (1, 2)})
    assert "2 x CPU" in (tmp_path / "model" / "README.md").read_text()
    one, two = losses(undisturbed), losses(tmp_path / "model")
    assert [step for step, _ in two] == [step for step, _ in one]
    assert [loss for _, loss in two] == pytest.approx([loss for _, loss in one], rel=1e-3)


def test_a_loss_that_is_no_number_ends_the_run_once_and_says_so(
    sample_corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=r"step \d of 6: .*optim\.peak_lr"):
        run(sample_corpus, tmp_path / "model", **{"optim.peak_lr": 1e30, "optim.warmup_steps": 0})
    assert not (tmp_path / "model" / "manifest.json").exists()


@pytest.fixture
def damaged_corpus(sample_corpus: Path, tmp_path: Path) -> Path:
    corpus = tmp_path / "corpus"
    shutil.copytree(sample_corpus, corpus)
    shard = corpus / "train" / "00001.tar"
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    return corpus


def test_a_damaged_shard_ends_the_run_with_its_name(damaged_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"train/00001\.tar"):
        run(damaged_corpus, tmp_path / "model", **{"workers.restarts": 0})


def test_a_damaged_shard_is_replaced_where_asked_and_accounted_for(
    damaged_corpus: Path, tmp_path: Path
) -> None:
    manifest = run(damaged_corpus, tmp_path / "model", **{"data.unreadable": "replace"})
    replaced = manifest.notes["replaced"]
    assert replaced
    assert all(reason.startswith("train/00001.tar") for reason in replaced)


def test_an_epoch_that_cannot_be_validated_stops_neither_training_nor_its_lines(
    sample_corpus: Path, tmp_path: Path
) -> None:
    corpus, out = tmp_path / "corpus", tmp_path / "model"
    shutil.copytree(sample_corpus, corpus)
    shard = corpus / "val" / "00000.tar"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:600])
    said = io.StringIO()
    given = settings(corpus, out, **{"epochs": 2, "validation.every_epochs": 1})
    changed = configs.build(PretrainConfig, given)
    with pytest.raises(TrainingError, match=r"(?s)epoch 1 .*val/00000\.tar"):
        pretrain(changed, progress=said)
    assert not (out / "manifest.json").exists()
    assert {"000000002.pt", "000000004.pt"} <= set(checkpoints(out))
    for epoch in (1, 2):
        assert re.search(rf"epoch {epoch} .*00000\.tar", said.getvalue())
    assert re.search(r"ep 2/2 4/4 ", said.getvalue())
    shard.write_bytes(whole)
    assert pretrain(changed, progress=said).notes["validation"]


def test_a_last_checkpoint_that_cannot_be_read_is_made_again(
    undisturbed: Path, sample_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    out = tmp_path / "model"
    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "write_model", full)
        with pytest.raises(OSError, match="no space left"):
            run(sample_corpus, out)
    last = out / ".draft" / "checkpoints" / "000000006.pt"
    last.write_bytes(last.read_bytes()[:-200])
    run(sample_corpus, out)
    assert weights(out) == weights(undisturbed)
    assert losses(out) == losses(undisturbed)


def test_a_run_that_was_not_published_is_forked_and_prolonged(
    undisturbed: Path, sample_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    source, out = tmp_path / "source", tmp_path / "fork"
    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "write_model", full)
        with pytest.raises(OSError, match="no space left"):
            run(sample_corpus, source, **{"save.keep_last": 9})
    forked = {"from": f"{source}@epoch:2", "trackers": []}
    text = dry_run_text(configs.build(PretrainConfig, settings(sample_corpus, out, **forked)))
    assert re.search(r"remaining +2 steps, 64 pairs", text)
    assert not out.exists()
    manifest = run(sample_corpus, out, **forked)
    assert weights(out) == weights(undisturbed)
    assert losses(out) == losses(undisturbed)[4:]
    (entry,) = manifest.notes["lineage"]
    assert (entry["run"], entry["step"], entry["changed"]) == (str(source), 4, [])
    assert manifest.counts["pairs"]["seen"] == 6 * 32
    card = (out / "README.md").read_text()
    assert f"| source | 4 | 128 | {entry['checkpoint_sha256'][:16]} |" in card
    assert str(tmp_path) not in card
    with pytest.raises(ArtifactError, match=rf"--set from={source}@6"):
        run(sample_corpus, source, **{"optim.peak_lr": 1e-4})
    longer = run(sample_corpus, source, **{"epochs": 4, "save.keep_last": 9})
    assert [row[0] for row in losses(source)] == list(range(1, 9))
    assert longer.config["epochs"] == 4
    assert longer.notes["changed"] == [{"step": 6, "setting": "epochs", "before": 3, "after": 4}]
    assert "| 6 | `epochs` 3 → 4 |" in (source / "README.md").read_text()
    with pytest.raises(ArtifactError, match=rf"model\.weights={source}"):
        run(sample_corpus, source, **{"epochs": 5})


def test_a_second_driver_of_a_run_is_refused_and_disturbs_nothing(
    sample_corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    with acquire_lease(str(out), settle_s=0):
        unfinished = out / ".draft" / "ray" / "state.json"
        unfinished.parent.mkdir()
        unfinished.write_text("{}")
        with pytest.raises(ArtifactError, match=rf"{out} .*\b{os.getpid()}\b"):
            run(sample_corpus, out)
        assert unfinished.exists()
    assert not out.exists() or not list(out.iterdir())


def test_a_batch_larger_than_the_corpus_is_refused_before_anything_is_written(
    sample_corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"batch\.pairs: .*4,096 .*train"):
        run(sample_corpus, tmp_path / "model", **{"batch.pairs": 4096})
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("setting", ["model.weights", "model.image_weights", "model.text_weights"])
def test_weights_that_do_not_exist_are_refused_before_anything_is_written(
    sample_corpus: Path, tmp_path: Path, setting: str
) -> None:
    with pytest.raises(ArtifactError, match=f"{setting}: 'nowhere'"):
        run(sample_corpus, tmp_path / "model", **{setting: "nowhere"})
    assert not (tmp_path / "model").exists()


def test_a_tokenizer_of_which_another_token_is_published_is_refused_before_anything_is_written(
    sample_corpus: Path, tmp_path: Path
) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "ct"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ConfigError, match="eos_id=3"):
        run(sample_corpus, tmp_path / "model", **{"model.tokenizer": str(tmp_path)})
    assert not (tmp_path / "model").exists()


def test_more_workers_than_pairs_of_a_step_are_refused(sample_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"workers\.count: .*32 pairs for 33 "):
        run(sample_corpus, tmp_path / "model", **{"workers.count": 33})


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        (0, ["trains on CPUs, and the cluster has 8 GPUs: workers.gpus=1 uses them"]),
        (1, ["validates on CPUs, which may lag behind training: validation.gpus=1 gives it a GPU"]),
    ],
)
def test_gpus_that_nobody_asked_for_are_told(
    sample_corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    said: list[str],
) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 64.0, "GPU": 8.0})
    heard: list[str] = []
    given = settings(sample_corpus, tmp_path, **{"workers.gpus": gpus})
    check_resources(configs.build(PretrainConfig, given), heard.append)
    assert heard == said


@pytest.mark.ray
def test_workers_that_never_fit_on_this_machine_are_refused(
    sample_corpus: Path, tmp_path: Path, ray_session: None
) -> None:
    cpus = ray.cluster_resources()["CPU"]
    # The workers alone would fit, but nothing would prepare their data.
    changes = {"workers.count": 1, "workers.cpus": cpus}
    with pytest.raises(ConfigError, match=f"CPUs for .*: {cpus + 1:g} needed"):
        run(sample_corpus, tmp_path / "out", **changes)
    # The corrected command may use the folder.
    run(sample_corpus, tmp_path / "out", **{"workers.count": 0, "epochs": 1})


def test_two_corpora_are_trained_on_together_and_named_in_card_manifest_and_estimate(
    undisturbed: Path, sample_corpus: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "again"
    shutil.copytree(sample_corpus, copy)
    # A corpus that another version made, not the same one.
    other = json.loads((copy / "manifest.json").read_text()) | {"code": "biovl 0.0"}
    (copy / "manifest.json").write_text(json.dumps(other))
    both = {"corpus": [str(sample_corpus), str(copy)], "mixture.shares": [0.75, 0.25]}
    values = {**settings(sample_corpus, tmp_path / "model", epochs=1), **both}
    manifest = pretrain(configs.build(PretrainConfig, values))
    pairs = json.loads((undisturbed / "manifest.json").read_text())["counts"]["pairs"]["train"]
    draws = [part["draws_per_epoch"] for part in manifest.counts["corpora"]]
    assert draws == [round(1.5 * pairs), 2 * pairs - round(1.5 * pairs)]
    assert manifest.counts["steps"] == 2 * pairs // 32
    assert [item.name for item in manifest.inputs] == ["corpus", "corpus 2"]
    card = (tmp_path / "model" / "README.md").read_text()
    assert "in 2 corpora" in card
    assert f"| again | {pairs} | 0 | {draws[1]} (25.0%) |" in card
    assert str(tmp_path) not in card
    values = {**settings(sample_corpus, tmp_path / "other"), **both}
    text = dry_run_text(configs.build(PretrainConfig, values))
    assert f"{copy}: {pairs} pairs, {draws[1]} drawn an epoch (25.0%)" in text
    assert f"{2 * pairs} pairs of an epoch" in text
    assert f"validation: val of {sample_corpus}" in text


def test_what_a_run_takes_is_told_without_starting_it(sample_corpus: Path) -> None:
    values = {
        **configs.recipe_settings(pretrain_config.biomedclip()),
        "batch.pairs": 16,
        "corpus": str(sample_corpus),
        "out": "x",
    }
    text = dry_run_text(configs.build(PretrainConfig, values))
    assert "H200" in text
    assert "A100-80" in text
