"""A run that continues a checkpoint of another: what it takes over, and what it reports."""

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from biovl.core import config as configs
from biovl.core.artifacts import MANIFEST, Draft, Input, Manifest, to_json
from biovl.core.errors import ArtifactError, ConfigError
from biovl.models.builders.open_clip import Built
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import OptimConfig, PretrainConfig, identity
from biovl.pretrain.fork import (
    find_fork,
    map_optimizer,
    start_fork,
    steps_before,
)
from biovl.pretrain.job import pretrain
from biovl.pretrain.lineage import pairs_seen, read_lineage
from biovl.pretrain.mixture import inputs_of, read_mixture
from biovl.pretrain.models import build, check_optimizer, complete_model, weights_of
from biovl.pretrain.optimizer import make_optimizer, parameter_names
from biovl.pretrain.run import Callbacks, run
from biovl.pretrain.schedule import Plan, learning_rate
from biovl.pretrain.trackers import read_metrics
from biovl.runtime.checkpoints import Checkpoints
from biovl.runtime.workers import Workers
from tests.pretrain.saving import saves_at_once
from tests.pretrain.tiny_clip import tiny_model

PAIRS = 17
"""Four steps of four pairs in an epoch; the last pair is dropped."""


MODEL: dict[str, Any] = {
    "name": "open_clip",
    "embed_dim": 8,
    "vision_cfg": {"layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    # Narrow, so that checkpoints are small.
    "text_cfg": {"layers": 1, "width": 4, "heads": 2},
    "image_size": 16,
    "context_length": 8,
}


@pytest.fixture(scope="module", autouse=True)
def _saves_at_once() -> Iterator[None]:
    with saves_at_once():
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return publish_corpus(tmp_path_factory.mktemp("data") / "corpus", PAIRS)


def publish_corpus(folder: Path, pairs: int) -> str:
    counts = {"pairs": {"train": pairs, "val": 0}}
    draft = Draft.begin(str(folder), "corpus", {"pairs": pairs})
    draft.publish(Manifest(kind="corpus", config={"pairs": pairs}, counts=counts))
    return str(folder)


def config(corpus: str, out: Path, **changes: Any) -> PretrainConfig:
    values = {
        "corpus": corpus,
        "out": str(out),
        "model": MODEL,
        "epochs": 3,
        "batch.pairs": 4,
        "optim.warmup_steps": 2,
        "save": {"every_steps": 1, "every_minutes": None, "keep_last": 99},
        "trackers": [],
        "deterministic": True,
    }
    return configs.build(PretrainConfig, {**values, **changes})


def train(config: PretrainConfig, *, until: int | None = None) -> tuple[list[int], list[str]]:
    """Run pretrain's parts as the job does; return the pairs trained on and the log."""
    drawn, said = list[int](), list[str]()
    mixture = read_mixture(config)
    plan = Plan.of(mixture.draws, config.batch, config.epochs)
    fork = find_fork(config, mixture, plan)
    draft = Draft.begin(
        config.out, "model", identity(configs.to_plain(config))[0], inputs_of(config)
    )
    if fork is not None:
        built = build(config.model, with_weights=False)
        check_optimizer(built, config.optim)
        said += fork.lines
        start_fork(fork, config, plan, built, draft, said.append)

    start = max([0, *Checkpoints(config.out).steps()])
    if until == start:
        return drawn, said

    def batches(
        built: Built, steps_done: int, while_waiting: Callable[[], None]
    ) -> Generator[Batch]:
        for number in range(steps_done, plan.steps):
            place = plan.place(number)
            first = 1_000 * place.epoch + place.step * place.batch_pairs
            if until is None or number < until:
                drawn.extend(range(first, first + place.batch_pairs))
            yield batch(range(first, first + place.batch_pairs))

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("saved after"):
            raise InterruptedError

    # Asked after every step: the checkpoint is written, and the run ends.
    asked = itertools.count(start + 1)
    callbacks = Callbacks(
        batches, lambda epoch, steps: None, say, preempted=lambda: next(asked) == until
    )
    with contextlib.suppress(InterruptedError):
        run(config, plan, None, callbacks, workers=Workers(), device=torch.device("cpu"))
    return drawn, said


def batch(pairs: range) -> Batch:
    """A pair has the same image and caption wherever it is drawn."""
    rngs = [np.random.default_rng(pair) for pair in pairs]
    captions = [np.array([49406, *rng.integers(0, 400, 3), 49407]) for rng in rngs]
    return Batch.of(
        np.stack([rng.integers(0, 255, (16, 16, 3), np.uint8) for rng in rngs]), captions
    )


def weights(out: Path, steps_done: int) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = Checkpoints(str(out)).load(steps_done)["model"]
    return found


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def interrupted(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("interrupted") / "run"
    train(config(corpus, out), until=6)
    return out


@pytest.fixture
def source(interrupted: Path, tmp_path: Path) -> Path:
    """A run that was interrupted after 6 of 12 steps."""
    return Path(shutil.copytree(interrupted, tmp_path / "source"))


@pytest.fixture(scope="module")
def finished(corpus: str, interrupted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, after all steps."""
    out = Path(shutil.copytree(interrupted, tmp_path_factory.mktemp("finished") / "run"))
    train(config(corpus, out))
    return out


@pytest.mark.parametrize("step", ["3", "epoch:1", "last"])
def test_a_fork_with_nothing_changed_ends_in_the_same_bits(
    corpus: str, interrupted: Path, finished: Path, tmp_path: Path, step: str
) -> None:
    drawn, _ = train(config(corpus, tmp_path / "fork", **{"from": f"{interrupted}@{step}"}))
    assert drawn[-24:] == [*range(1_008, 1_016), *range(2_000, 2_016)]
    assert equal(weights(tmp_path / "fork", 12), weights(finished, 12))
    states = [Checkpoints(str(out)).load(12) for out in (tmp_path / "fork", finished)]
    assert states[0]["guard"] == states[1]["guard"]
    assert str(states[0]["optimizer"]) == str(states[1]["optimizer"])


def test_a_checkpoint_of_an_earlier_version_has_no_names_and_is_continued_equally(
    corpus: str, source: Path, finished: Path, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(str(source))
    state = checkpoints.load(6)
    del state["parameters"]
    checkpoints.save(state)
    checkpoints.wait()
    train(config(corpus, tmp_path / "fork", **{"from": f"{source}@6"}))
    assert equal(weights(tmp_path / "fork", 12), weights(finished, 12))


def test_a_lower_learning_rate_changes_the_steps_after_the_checkpoint(
    corpus: str, source: Path, tmp_path: Path
) -> None:
    lower = config(corpus, tmp_path / "fork", **{"from": f"{source}@5", "optim.peak_lr": 1e-4})
    _, said = train(lower, until=6)
    assert equal(weights(tmp_path / "fork", 5), weights(source, 5))
    assert not equal(weights(tmp_path / "fork", 6), weights(source, 6))
    plan = Plan([(4, 4)] * 3)
    rate = learning_rate(lower.optim, plan, plan.place(5))
    assert any(f"{rate:.3g}" in line for line in said)
    (entry,) = read_lineage(Draft(lower.out))
    assert entry["changed"] == [{"setting": "optim.peak_lr", "before": 5e-4, "after": 1e-4}]
    assert (entry["run"], entry["step"], entry["pairs"]) == (str(source), 5, 20)
    assert entry["checkpoint_sha256"] == Checkpoints(str(source)).sha256(5) != ""


def test_another_batch_continues_with_the_next_pairs_of_the_epoch(
    corpus: str, source: Path, tmp_path: Path
) -> None:
    # After 6 steps of 4: one epoch, and 8 pairs of the second.
    forked = config(corpus, tmp_path / "8", **{"from": f"{source}@6", "batch.pairs": 8})
    drawn, _ = train(forked)
    assert drawn == [*range(1_008, 1_016), *range(2_000, 2_016)]
    # A batch of 3 would begin within the ninth pair's batch: it begins with the next full one.
    drawn, said = train(config(corpus, tmp_path / "3", **{"from": f"{source}@6", "batch.pairs": 3}))
    assert drawn[:3] == [1_009, 1_010, 1_011]
    assert any("1 pairs" in line for line in said)


def test_a_later_batch_size_of_the_fork_counts_from_its_epoch(
    corpus: str, source: Path, tmp_path: Path
) -> None:
    changes = {"from": f"{source}@4", "batch.later": {1: 8}}
    drawn, _ = train(config(corpus, tmp_path / "fork", **changes))
    assert drawn == [*range(1_000, 1_016), *range(2_000, 2_016)]
    assert Checkpoints(str(tmp_path / "fork")).steps() == [4, 5, 6, 7, 8]


def test_more_epochs_stretch_the_cosine_from_the_checkpoint_on(
    corpus: str, source: Path, tmp_path: Path
) -> None:
    longer = config(corpus, tmp_path / "fork", **{"from": f"{source}@6", "epochs": 6})
    train(longer, until=8)
    rows = [json.loads(line) for line in Path(longer.out, "metrics.jsonl").read_text().splitlines()]
    plan = Plan([(4, 4)] * 6)
    assert [row["step"] for row in rows] == [7, 8]
    assert rows[0]["lr"] == learning_rate(longer.optim, plan, plan.place(6))


def test_other_data_are_continued_at_the_same_share_of_the_epoch(
    source: Path, tmp_path: Path
) -> None:
    other = publish_corpus(tmp_path / "other", 2 * PAIRS)
    drawn, said = train(config(other, tmp_path / "fork", **{"from": f"{source}@6"}), until=13)
    # 8 of 17 pairs of the second epoch are done: 16 of 34.
    assert drawn[0] == 1_016
    assert any("order" in line for line in said)
    assert "guard" in Checkpoints(str(source)).load(6)
    start = Checkpoints(str(tmp_path / "fork")).load(12)
    assert "guard" not in start


def test_the_share_of_an_epoch_needs_no_corpus_of_a_published_run(tmp_path: Path) -> None:
    gone = publish_corpus(tmp_path / "gone", PAIRS)
    first = config(gone, tmp_path / "source")
    train(first, until=6)
    shutil.rmtree(gone)
    forked = config(
        publish_corpus(tmp_path / "other", 2 * PAIRS),
        tmp_path / "fork",
        **{"from": f"{first.out}@6"},
    )
    with pytest.raises(ArtifactError, match="position"):
        train(forked)
    begun = Draft(first.out).read_note("begun")
    assert begun is not None
    manifest = {
        "kind": "model",
        "config": begun["config"],
        "counts": {"pairs": {"train": PAIRS}},
        "inputs": [{"name": "corpus", "uri": gone, "fingerprint": "1"}],
        "code": "biovl 0",
    }
    Path(first.out, "manifest.json").write_text(json.dumps(manifest))
    # As it is published with save.keep_every.
    shutil.move(Path(first.out, ".draft", "checkpoints"), Path(first.out, "checkpoints"))
    shutil.rmtree(Path(first.out, ".draft"))
    drawn, _ = train(forked, until=13)
    assert drawn[0] == 1_016


def test_moments_are_mapped_by_name_whatever_the_groups_are(
    corpus: str, source: Path, tmp_path: Path
) -> None:
    # A group for each layer, and other parameters decay: other numbers.
    changes = {"optim.layer_decay": 0.5, "optim.decay_embeddings": False}
    train(config(corpus, tmp_path / "fork", **{"from": f"{source}@6", **changes}), until=6)
    before, after = (Checkpoints(str(out)).load(6) for out in (source, tmp_path / "fork"))
    assert before["parameters"] != after["parameters"]
    for number, name in enumerate(after["parameters"]):
        there = before["optimizer"]["state"][before["parameters"].index(name)]
        here = after["optimizer"]["state"][number]
        assert all(torch.equal(there[key], here[key]) for key in there), name
    groups = after["optimizer"]["param_groups"]
    assert len({group["lr_scale"] for group in groups}) == 2


def test_a_tower_that_was_locked_starts_without_moments_and_is_reported(
    corpus: str, tmp_path: Path
) -> None:
    locked = config(corpus, tmp_path / "source", **{"optim.locked": "image"})
    train(locked, until=5)
    forked = config(corpus, tmp_path / "fork", **{"from": f"{locked.out}@5"})
    _, said = train(forked, until=6)
    (line,) = (line for line in said if line.startswith("optimizer:"))
    names = Checkpoints(forked.out).load(5)["parameters"]
    fresh = [name for name in names if name.startswith("visual.")]
    assert f"{len(fresh)} start without" in line
    assert read_lineage(Draft(forked.out))[0]["parameters_without_state"] == len(fresh)
    state = Checkpoints(forked.out).load(6)["optimizer"]["state"]
    assert {float(state[names.index(name)]["step"]) for name in fresh} == {1}
    assert float(state[names.index("logit_scale")]["step"]) == 6


def test_counters_of_a_group_are_taken_over_and_its_settings_are_not() -> None:
    made = {"param_groups": [{"params": [0, 1], "decay": 0.1, "step": 0}], "state": {}}
    saved = {
        "param_groups": [{"params": [0, 1], "decay": 0.1, "step": 7}],
        "state": {0: {"m": "a"}, 1: {"m": "b"}},
    }
    fresh = {
        "param_groups": [
            {"params": [0, 1], "decay": 0.5, "step": 0},
            {"params": [2], "decay": 0.0, "step": 0},
        ],
        "state": {},
    }
    mapped, without = map_optimizer(saved, ["a", "b"], made, fresh, ["b", "new", "a"])
    assert mapped["state"] == {0: {"m": "b"}, 2: {"m": "a"}}
    assert without == ["new"]
    assert [(g["decay"], g["step"]) for g in mapped["param_groups"]] == [(0.5, 7), (0.0, 7)]


@pytest.mark.parametrize("name", ["adamw", "timm/lamb", "timm/adan", "timm/nadamw", "timm/lion"])
def test_the_state_of_any_optimizer_is_taken_over_as_it_is(name: str) -> None:
    optim, model = OptimConfig(name=name), tiny_model()
    optimizer = make_optimizer(model, optim)
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    names, saved = parameter_names(model, optimizer), optimizer.state_dict()
    made = make_optimizer(tiny_model().to("meta"), optim).state_dict()
    fresh = make_optimizer(tiny_model(), optim).state_dict()
    assert map_optimizer(saved, names, made, fresh, names) == (saved, [])


def test_names_are_in_the_order_of_the_numbers_of_the_optimizer(
    corpus: str, tmp_path: Path
) -> None:
    made = config(corpus, tmp_path, **{"optim.layer_decay": 0.5})
    model = build(made.model, with_weights=False).model
    optimizer = make_optimizer(model, made.optim)
    names, own = parameter_names(model, optimizer), dict(model.named_parameters())
    optimizer.zero_grad()
    for number, name in enumerate(names):
        own[name].grad = torch.full_like(own[name], float(number + 1))
    optimizer.step()
    for number, values in optimizer.state_dict()["state"].items():
        expected = torch.full_like(own[names[number]], (1 - made.optim.betas[0]) * (number + 1))
        torch.testing.assert_close(values["exp_avg"], expected)


def test_weights_alone_start_a_new_run(corpus: str, source: Path, tmp_path: Path) -> None:
    changes = {"from": f"{source}@6", "from_state": "weights"}
    drawn, _ = train(config(corpus, tmp_path / "fork", **changes), until=1)
    assert drawn[0] == 0
    assert equal(weights(tmp_path / "fork", 0), weights(source, 6))
    start = Checkpoints(str(tmp_path / "fork")).load(0)
    assert start["optimizer"]["state"] == {}
    assert not equal(weights(tmp_path / "fork", 1), weights(source, 1))


def test_a_fork_never_reads_the_other_run_again(corpus: str, source: Path, tmp_path: Path) -> None:
    forked = config(corpus, tmp_path / "fork", **{"from": f"{source}@last"})
    train(forked, until=7)
    shutil.rmtree(source)
    drawn, _ = train(forked)
    assert drawn[0] == 1_012
    assert Checkpoints(forked.out).steps()[-1] == 12


def test_the_lineage_of_a_fork_of_a_fork_has_both(
    corpus: str, source: Path, tmp_path: Path
) -> None:
    first = config(corpus, tmp_path / "first", **{"from": f"{source}@5", "batch.pairs": 8})
    train(first, until=4)
    second = config(
        corpus, tmp_path / "second", **{"from": f"{first.out}@4", "batch.pairs": 8, "epochs": 5}
    )
    train(second, until=5)
    lineage = read_lineage(Draft(second.out))
    assert [entry["run"] for entry in lineage] == [str(source), first.out]
    assert [entry["step"] for entry in lineage] == [5, 4]
    # 20 pairs; then, from the second batch of 8 of the second epoch on, one batch.
    assert [entry["pairs"] for entry in lineage] == [20, 28]
    plan = Plan([(8, 2)] * 5)
    assert pairs_seen(lineage, plan, plan.steps) == 28 + 3 * 16
    assert steps_before(second, None) == 4
    (*_, last) = read_metrics(Path(second.out, "metrics.jsonl"))
    assert (last["step"], last["pairs_seen"]) == (5, pairs_seen(lineage, plan, 5))


def test_a_step_that_does_not_exist_lists_those_that_do(
    corpus: str, source: Path, tmp_path: Path
) -> None:
    for step in ("99", "epoch:3", "epoch:0"):
        with pytest.raises(ConfigError, match=r"from: .* 1, 2, 3, 4 \(epoch:1\), 5, 6"):
            train(config(corpus, tmp_path / "fork", **{"from": f"{source}@{step}"}))
    assert not (tmp_path / "fork").exists()


def test_a_corrupt_checkpoint_names_the_one_before(
    corpus: str, source: Path, tmp_path: Path
) -> None:
    path = source / ".draft" / "checkpoints" / "000000006.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 8
    path.write_bytes(data)
    forked = config(corpus, tmp_path / "fork", **{"from": f"{source}@last"})
    with pytest.raises(ArtifactError, match=r"000000006\.pt.*\n.*from=.*@5"):
        train(forked)
    # Nothing was trained: the corrected command may use the same folder.
    assert Checkpoints(forked.out).steps() == []


@pytest.mark.parametrize("name", ["", "nothing", "corpus"])
def test_what_is_no_run_is_refused(corpus: str, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    forked = config(corpus, tmp_path / "fork", **{"from": f"{tmp_path / (name or 'empty')}@last"})
    with pytest.raises(ArtifactError, match=r"from: .*pretrain"):
        train(forked)


def test_a_fork_is_another_folder(corpus: str, source: Path) -> None:
    draft = Draft(str(source))
    shutil.rmtree(source / ".draft" / "checkpoints")
    with pytest.raises(ArtifactError, match=r"out: .*from"):
        train(config(corpus, source, **{"from": f"{source}@6"}))
    assert draft.read_note("begun") is not None


@pytest.mark.parametrize("text", ["run", "run@", "@6", "run@epoch", "run@-1", "run@best"])
def test_what_is_no_checkpoint_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"RUN@STEP.*epoch:N"):
        config("c", Path("o"), **{"from": text})


def test_a_checkpoint_is_named_by_the_last_sign() -> None:
    named = config("c", Path("o"), **{"from": "s3://me@bucket/a@b/run@epoch:12"})
    assert named.checkpoint == ("s3://me@bucket/a@b/run", "epoch:12")


def test_another_architecture_is_refused_with_tensors(
    corpus: str, source: Path, tmp_path: Path
) -> None:
    other = {**MODEL, "text_cfg": {**MODEL["text_cfg"], "layers": 2}, "image_size": 24}
    with pytest.raises(ArtifactError) as caught:
        train(config(corpus, tmp_path / "fork", **{"from": f"{source}@6", "model": other}))
    assert "visual.positional_embedding (5, 16) there, (10, 16) here" in str(caught.value)
    assert "text.transformer.resblocks.1." in str(caught.value)


def test_a_fork_with_the_loss_of_siglip_begins_with_its_bias(
    corpus: str, source: Path, tmp_path: Path
) -> None:
    train(
        complete_model(
            config(corpus, tmp_path / "fork", **{"from": f"{source}@6", "step.loss": "siglip"})
        ),
        until=6,
    )
    fork, before = weights(tmp_path / "fork", 6), weights(source, 6)
    assert fork.pop("logit_bias").tolist() == -10
    assert equal(fork, before)


def publish_run(config: PretrainConfig, *weights: Input) -> Manifest:
    """Publish a folder as the job does, without training."""
    what, inputs = identity(configs.to_plain(config))[0], [*inputs_of(config), *weights]
    manifest = Manifest(kind="model", config=what, counts={}, inputs=inputs)
    return Draft.begin(config.out, "model", what, inputs).publish(manifest)


def test_a_model_that_siglip_trained_without_a_bias_is_not_the_result(
    corpus: str, tmp_path: Path
) -> None:
    without, complete = (
        config(corpus, tmp_path / name, **{"step.loss": "siglip"}) for name in ("old", "new")
    )
    publish_run(without)
    with pytest.raises(ArtifactError, match="init_logit_bias"):
        pretrain(without)
    published = publish_run(complete_model(complete))
    assert pretrain(complete) == published


@pytest.mark.parametrize("setting", ["weights", "image_weights", "text_weights"])
@pytest.mark.parametrize("given", ["file", "folder", "published"])
def test_a_model_from_weights_that_were_replaced_is_not_the_result(
    corpus: str, tmp_path: Path, setting: str, given: str
) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    file = folder / "model.pt"
    file.write_bytes(b"old")
    manifest = folder / MANIFEST
    if given == "published":
        manifest.write_bytes(to_json(asdict(Manifest(kind="model", config={"a": 1}, counts={}))))
    uri = str(file if given == "file" else folder)
    old, new = (
        config(corpus, tmp_path / name, model={**MODEL, setting: uri}) for name in ("old", "new")
    )
    inputs = weights_of(new)
    assert [item.name for item in inputs] == [setting]
    published = publish_run(new, *inputs)
    assert pretrain(new) == published
    (manifest if given == "published" else file).write_bytes(
        to_json(asdict(Manifest(kind="model", config={"a": 2}, counts={})))
    )
    with pytest.raises(ArtifactError, match=setting):
        pretrain(new)
    # Weights that are gone were not replaced, and earlier versions recorded none.
    shutil.rmtree(folder)
    assert pretrain(new) == published
    folder.mkdir()
    file.write_bytes(b"any")
    before = publish_run(old)
    assert pretrain(old) == before


def test_weights_by_name_are_no_input(corpus: str, tmp_path: Path) -> None:
    named = config(corpus, tmp_path / "run", model={**MODEL, "weights": "owner/name"})
    assert weights_of(named) == []


def test_a_run_that_is_over_needs_more_epochs(corpus: str, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="epochs to 4"):
        train(config(corpus, tmp_path / "fork", **{"from": f"{finished}@last"}))
    drawn, _ = train(config(corpus, tmp_path / "fork", **{"from": f"{finished}@12", "epochs": 4}))
    assert drawn == list(range(3_000, 3_016))
