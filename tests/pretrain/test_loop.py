"""The loop: it learns, goes on bit for bit where it was, and ends when it is not worth it."""

import functools
import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from biovl.core.errors import TrainingError
from biovl.core.plugins import Plugin
from biovl.models.precision import full_precision
from biovl.pretrain import guard
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import (
    BatchConfig,
    OptimConfig,
    PretrainConfig,
    StepConfig,
    TroubleConfig,
)
from biovl.pretrain.feature_rank import effective_rank
from biovl.pretrain.loop import StepReport, Trainer, allow_tf32, train
from biovl.pretrain.optimizer import apply_update, decays
from biovl.pretrain.schedule import Plan, StepPosition
from biovl.pretrain.step import Towers
from biovl.runtime.workers import Workers
from tests.pretrain.tiny_clip import pairs, tiny_model, towers_of

CONFIG = PretrainConfig(
    corpus="",
    out="",
    model=Plugin("open_clip"),
    epochs=2,
    batch=BatchConfig(pairs=8),
    optim=OptimConfig(peak_lr=3e-3, warmup_steps=5, clip_grad_norm=1.0),
)


def trainer(config: PretrainConfig = CONFIG, dropout: float = 0.0) -> Trainer:
    model = tiny_model(dropout=dropout).train()
    plan = Plan.of(160, config.batch, config.epochs)
    return Trainer(
        towers_of(model), model, config, plan, device=torch.device("cpu"), workers=Workers()
    )


def stream(start: int = 0, stop: int = 40) -> Iterator[Batch]:
    return (pairs(8, seed=number) for number in range(start, stop))


def run(loop: Trainer, batches: Iterator[Batch]) -> list[StepReport]:
    return list(train(loop, batches))


def test_a_model_learns_which_caption_belongs_to_which_image() -> None:
    config = replace(CONFIG, epochs=8)
    reports = run(trainer(config), stream(0, 160))
    # A model that knows nothing has ln 8 = 2.08.
    assert sum(report.loss for report in reports[-10:]) / 10 < 1.2
    assert [report.steps_done for report in reports] == list(range(1, 161))
    assert {len(report.lengths_B) for report in reports} == {8}


def same_state(one: dict[str, Any], other: dict[str, Any]) -> bool:
    # The learning rate in the groups of the optimizer is set before every step.
    parts = [{**s, "optimizer": s["optimizer"]["state"]} for s in (one, other)]
    leaves, others = map(tree_leaves, parts)
    return len(leaves) == len(others) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(leaves, others, strict=True)
    )


def test_a_run_whose_results_are_read_a_step_later_is_the_same_at_every_report() -> None:
    # As on a GPU, where the next step is computed before a result is read.
    plain, ahead = trainer(dropout=0.2), trainer(dropout=0.2)
    ahead.runs_ahead = True
    for one, other in zip(train(plain, stream()), train(ahead, stream()), strict=True):
        assert (one.steps_done, one.loss, one.lr) == (other.steps_done, other.loss, other.lr)
        assert (one.grad_norm, one.logit_scale) == (other.grad_norm, other.logit_scale)
        assert one.lengths_B.tolist() == other.lengths_B.tolist()
        assert same_state(plain.state(), ahead.state())
    assert ahead.steps_done == 40


@pytest.mark.parametrize("runs_ahead", [False, True])
def test_a_run_that_ends_at_a_bad_step_has_the_weights_of_before(runs_ahead: bool) -> None:
    loop, states = trainer(), []
    loop.runs_ahead = runs_ahead
    gradient = loop._model.visual.conv1.weight.register_hook  # type: ignore[union-attr]
    with pytest.raises(TrainingError, match=r"step 4 of 40: .*norm of the gradient nan"):
        for report in train(loop, stream()):
            states.append(loop.state())
            # A run ahead has computed the gradient of the next step already.
            if report.steps_done == (2 if runs_ahead else 3):
                gradient(lambda grad: grad * math.nan)
    assert loop.steps_done == 3
    assert same_state(loop.state(), states[-1])
    assert len(states) == 3


class HostReads(TorchDispatchMode):
    """Operations in order, and whether each brings values from the GPU to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        reads = any(x.is_cuda for x in given) and any(
            not x.is_cuda for x in tree_leaves(result) if isinstance(x, torch.Tensor)
        )
        self.seen.append((func.__name__, reads))
        return result


def test_the_host_reads_nothing_from_the_gpu_before_it_has_launched_the_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: SimpleNamespace(record=lambda: None))
    with FakeTensorMode(), torch.device("cuda"), HostReads() as reads:
        # A value that Python asks for would raise: fake tensors have none.
        model = torch.nn.Linear(3, 4)
        model.logit_scale = torch.nn.Parameter(torch.zeros(()))
        towers = Towers(model, model, model.logit_scale)
        plan = Plan.of(160, CONFIG.batch, CONFIG.epochs)
        loop = Trainer(towers, model, CONFIG, plan, device=torch.device("cuda"), workers=Workers())
        assert loop.runs_ahead
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        reads.seen.clear()
        loop.update(torch.ones(()), torch.ones(1, device="cpu"))
    names = [name for name, _ in reads.seen]
    first_read = [reads_value for _, reads_value in reads.seen].index(True)
    # The last change of a weight is that of the scale on similarities.
    assert names.index("_fused_adamw_.default") < names.index("where.self") + 1 < first_read
    assert names[-1] == "copy_.default"


@pytest.mark.parametrize(
    "make", [partial(torch.optim.AdamW, fused=True), partial(torch.optim.SGD, momentum=0.9)]
)
def test_an_update_that_is_not_finite_changes_neither_weights_nor_state(make: Any) -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = make([weight], lr=0.1, weight_decay=0.2)
    weight.grad = torch.tensor([0.5, 0.25])
    apply_update(optimizer, torch.tensor(True))
    before, weights = deepcopy(optimizer.state_dict()), weight.detach().clone()
    assert not torch.equal(weights, torch.tensor([1.0, 2.0]))
    weight.grad = torch.tensor([math.nan, 0.25])
    apply_update(optimizer, torch.tensor(False))
    assert torch.equal(weight, weights)
    assert same_state({"optimizer": optimizer.state_dict()}, {"optimizer": before})


@functools.cache
def undisturbed(micro_batch: int | None) -> dict[str, torch.Tensor]:
    """Return the weights of a run that nobody killed."""
    loop = trainer(replace(CONFIG, step=StepConfig(micro_batch=micro_batch)), dropout=0.2)
    run(loop, stream())
    weights: dict[str, torch.Tensor] = loop.state()["model"]
    return weights


@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize("killed_after", [1, 19, 20, 33])
def test_a_run_that_goes_on_ends_in_the_same_bits(
    killed_after: int, micro_batch: int | None
) -> None:
    config = replace(CONFIG, step=StepConfig(micro_batch=micro_batch))
    first = trainer(config, dropout=0.2)
    run(first, stream(0, killed_after))
    second = trainer(config, dropout=0.2)
    second.load(first.state())
    assert second.steps_done == killed_after
    run(second, stream(killed_after))
    for name, value in undisturbed(micro_batch).items():
        assert torch.equal(value, second.state()["model"][name]), name


def test_a_state_of_another_model_is_refused_with_what_to_do() -> None:
    state = trainer().state()
    state["model"]["visual.conv1.weight"] = torch.zeros(2, 3)
    with pytest.raises(TrainingError, match=r"(?s)step 0 .*visual\.conv1\.weight"):
        trainer().load(state)


def test_a_loss_that_is_no_number_ends_the_run_with_the_step_named() -> None:
    loop = trainer()
    with torch.no_grad():
        loop._model.visual.conv1.weight.fill_(math.nan)  # type: ignore[union-attr,operator]
    with pytest.raises(TrainingError, match=r"step 1 of 40: .*nan.*optim\.peak_lr"):
        run(loop, stream())


def test_a_loss_that_is_no_number_is_passed_over_where_asked() -> None:
    config = replace(CONFIG, trouble=TroubleConfig(not_finite="skip"))
    loop = trainer(config)
    before = deepcopy(loop.state()["model"])
    with torch.no_grad():
        loop._towers.logit_scale.fill_(math.nan)
    reports = run(loop, stream(0, 3))
    assert [report.skipped for report in reports] == [True] * 3
    assert loop.steps_done == 3
    after = loop.state()["model"]
    assert all(torch.equal(after[n], before[n]) for n in before if n != "logit_scale")


def test_a_run_whose_every_step_is_passed_over_ends() -> None:
    config = replace(CONFIG, epochs=8, trouble=TroubleConfig(not_finite="skip"))
    loop = trainer(config)
    with torch.no_grad():
        loop._towers.logit_scale.fill_(math.nan)
    with pytest.raises(TrainingError, match="100 steps"):
        run(loop, stream(0, 160))


def shuffled(batch: Batch, by: int) -> Batch:
    """Captions that belong to other images: nothing can be learnt."""
    return Batch(batch.pixels_BHWC.roll(by, 0), batch.tokens_T, batch.lengths_B)


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_a_run_that_does_no_better_than_guessing_ends(
    micro_batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of 1,000, so that the test is short: the chance of 8 pairs is the same in micro-batches.
    monkeypatch.setattr(guard, "CHANCE_STEPS", 40)
    config = replace(CONFIG, epochs=4, step=StepConfig(micro_batch=micro_batch))
    batches = [shuffled(pairs(8, seed=n), 1 + n % 7) for n in range(80)]
    with pytest.raises(TrainingError, match=r"\b8 .*2\.079"):
        run(trainer(config), iter(batches))
    patient = replace(config, trouble=TroubleConfig(collapsed=False))
    assert len(run(trainer(patient), iter(batches))) == 80


def test_a_run_that_was_killed_after_its_loss_jumped_is_compared_with_what_it_was() -> None:
    loop, place = trainer(), StepPosition(epoch=0, step=9, batch_pairs=4096, pairs_before=9 * 4096)
    for step in range(300):
        loop.guard.add(1.0 + 0.01 * (step % 7), place, CONFIG.trouble, skipped=False)
    resumed = trainer()
    resumed.load(loop.state())
    with pytest.raises(TrainingError, match=r"\b1\.03\b"):
        for _ in range(60):
            resumed.guard.add(6.0, place, CONFIG.trouble, skipped=False)


@pytest.mark.parametrize(("precision", "products"), [("fp32", "tf32"), ("bf16", None)])
def test_fp32_on_gpus_is_that_of_open_clip_but_for_the_loss(
    precision: str, products: str | None
) -> None:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        allow_tf32(precision, torch.device("cpu"))
        assert matmul.fp32_precision == before
        allow_tf32(precision, torch.device("cuda"))
        assert matmul.fp32_precision == (products or before)
        with full_precision():
            assert matmul.fp32_precision == "ieee"
    finally:
        matmul.fp32_precision = before


def test_the_scale_on_similarities_stays_between_1_and_100() -> None:
    config = replace(CONFIG, optim=replace(CONFIG.optim, peak_lr=3.0, warmup_steps=0))
    config = replace(config, trouble=TroubleConfig(diverged=None))
    scales = [report.logit_scale for report in run(trainer(config), stream())]
    assert 1 <= min(scales) <= max(scales) <= 100.001


@pytest.mark.parametrize(
    ("name", "shape", "settings", "decayed"),
    [
        ("visual.conv1.weight", (4, 3, 2, 2), {}, True),
        ("visual.ln_pre.weight", (4,), {}, False),
        ("text.transformer.encoder.layer.0.output.dense.bias", (4,), {}, False),
        ("logit_scale", (), {}, False),
        ("visual.trunk.pos_embed", (1, 4, 4), {}, True),
        ("visual.trunk.pos_embed", (1, 4, 4), {"decay_embeddings": False}, False),
        (
            "text.transformer.embeddings.word_embeddings.weight",
            (4, 4),
            {"decay_embeddings": False},
            True,
        ),
    ],
)
def test_matrices_decay_and_the_rest_does_not(
    name: str, shape: tuple[int, ...], settings: dict[str, Any], decayed: bool
) -> None:
    parameter = torch.nn.Parameter(torch.zeros(shape))
    assert decays(name, parameter, OptimConfig(**settings)) == decayed


def test_the_scale_that_is_reported_is_the_one_in_the_loss() -> None:
    config = replace(CONFIG, optim=replace(CONFIG.optim, peak_lr=0.1, warmup_steps=0))
    loop = trainer(config)
    before = float(loop.state()["model"]["logit_scale"].exp())
    (report,) = run(loop, stream(0, 1))
    assert report.logit_scale == pytest.approx(before)
    assert report.logit_scale != pytest.approx(float(loop.state()["model"]["logit_scale"].exp()))


def with_ranks(lr: float) -> PretrainConfig:
    return replace(
        CONFIG,
        epochs=20,
        optim=OptimConfig(peak_lr=lr, warmup_steps=5),
        trouble=TroubleConfig(rank_every_steps=10),
    )


def test_a_collapse_is_reported_within_three_measurements_of_the_rank_and_learning_is_not() -> None:
    learning = trainer(with_ranks(3e-3))
    alarms = [step for step, _ in alarms_of(learning, stream(0, 200))]
    assert alarms == []
    collapsing = trainer(with_ranks(1.0))
    collapsing.load(learning.state())
    found = [step for step, line in alarms_of(collapsing, stream(200, 235)) if "rank" in line]
    assert len(found) == 1
    assert found[0] <= 230


def alarms_of(loop: Trainer, batches: Iterator[Batch]) -> list[tuple[int, str]]:
    alarms = []
    for report in train(loop, batches):
        ranks = loop.ranks.take(report.steps_done)
        assert (ranks is None) == (report.steps_done % 10 != 0)
        if ranks is not None:
            loop.guard.add_ranks(*ranks)
        alarms += [(report.steps_done, line) for line in loop.guard.take_alarms()]
    return alarms


def test_the_effective_rank_is_the_entropy_of_the_singular_values() -> None:
    features = torch.nn.functional.normalize(torch.randn(40, 6, dtype=torch.float64), dim=1)
    for matrix in (features, features[:4]):
        singular = torch.linalg.svdvals(matrix)
        share = singular / singular.sum()
        expected = math.exp(-sum(float(p) * math.log(float(p)) for p in share))
        assert float(effective_rank(matrix)) == pytest.approx(expected, rel=1e-9)
    assert float(effective_rank(torch.eye(8))) == pytest.approx(8)
    assert float(effective_rank(torch.ones(9, 4) / 2)) == pytest.approx(1, abs=1e-5)
