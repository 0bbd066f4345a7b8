from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from biovl.core import config as configs
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin
from biovl.pretrain import config as pretrain_config
from biovl.pretrain import rates
from biovl.pretrain.activation_memory import Activations, TowerActivations
from biovl.pretrain.config import BatchConfig, PretrainConfig, PretrainWorkers, StepConfig
from biovl.pretrain.dry_run import render
from biovl.pretrain.estimate import estimate
from biovl.pretrain.flops import ForwardCost, TextCost
from biovl.pretrain.hardware import A100_40, A100_80, H100, NAMED, Accelerator, find_accelerator
from biovl.pretrain.memory import ModelInfo, loss_bytes, memory, model_info
from biovl.pretrain.models import describe as described


# A caption of n tokens costs n GFLOP, an image 10; a pair of one image and 2 tokens 3 * 12 = 36.
def kept(compute: str, autocast: bool, recomputed: bool) -> TowerActivations:
    """60 MB an image and 10 MB a token, of 10 blocks, a tenth of it where it is recomputed."""
    times = (1 if autocast else 2) / (10 if recomputed else 1)
    working = (0.1 if autocast else 0.2) * (0.3 + recomputed)
    return TowerActivations(
        image=Activations(each=60e6 * times, weights=2e9, working=60e6 * working),
        text=Activations(each=10e6 * times, weights=1e9, working=10e6 * working),
    )


NOTHING = Activations(each=0, weights=0, working=0)
INFO = ModelInfo(
    image_parameters=86_000_000,
    text_parameters=110_000_000,
    other_parameters=1,
    cost=ForwardCost(10_000_000_000, TextCost(0, 1e9, 0)),
    image_size=224,
    context=4,
    embed_dim=512,
    activations=kept,
)

LENGTHS = np.array([1, 2, 3, 9] * 250)
"""1,000 captions; cut to the context 1, 2, 3, 4: 2.5 tokens on average."""


def config(*, pairs=100, step=None, workers=1, epochs=2, later=None) -> PretrainConfig:
    return PretrainConfig(
        corpus="corpus",
        out="model",
        model=Plugin("open_clip"),
        epochs=epochs,
        batch=BatchConfig(pairs=pairs, later=later or {}),
        step=step or StepConfig(),
        workers=PretrainWorkers(count=workers),
    )


def test_work_is_counted_at_the_lengths_of_the_corpus() -> None:
    found = estimate(config(), INFO, LENGTHS)
    assert found.mean_tokens == 2.5
    assert found.fill == 2.5 / 4
    assert found.flops == pytest.approx(3 * 12.5e9)
    assert found.flops_padded == pytest.approx(3 * 14e9)
    assert (found.plan.steps, found.plan.pairs) == (20, 2000)
    assert found.passes == 3


def test_what_is_recomputed_is_a_fourth_pass() -> None:
    assert estimate(config(step=StepConfig(micro_batch=50)), INFO, LENGTHS).passes == 4
    assert estimate(config(step=StepConfig(micro_batch=100)), INFO, LENGTHS).passes == 3
    both = StepConfig(micro_batch=50, checkpoint_activations=True)
    assert estimate(config(step=both), INFO, LENGTHS).passes == 5


def test_time_is_work_over_the_share_of_the_peak_that_is_expected() -> None:
    # 2,000 pairs of 37.5 GFLOP on 2 GPUs that do 50 of 100 TFLOP/s: 0.75 s, 2,667 pairs/s.
    gpu = Accelerator("test", 100, 50, 80, shares=(0.5, 0.5))
    (found,) = estimate(config(workers=2), INFO, LENGTHS, accelerators=[gpu]).forecasts
    assert found.hours is not None
    assert found.hours * 3600 == pytest.approx(0.75)
    assert found.pairs_per_s == pytest.approx(2000 / 0.75)


def test_padding_takes_time() -> None:
    gpu = Accelerator("test", 100, 50, 80, shares=(0.5, 0.5))
    padded = config(workers=2, step=StepConfig(text="padded"))
    (found,) = estimate(padded, INFO, LENGTHS, accelerators=[gpu]).forecasts
    assert found.pairs_per_s == pytest.approx(2 * 50e12 / (3 * 14e9))


def test_only_epochs_of_batches_that_do_not_fit_are_recomputed() -> None:
    # 10 steps of 100 whole, then 2 of 500 in micro-batches: (3 * 1000 + 4 * 1000) * 12.5 GFLOP.
    gpu = Accelerator("test", 100, 50, 80, shares=(0.5, 0.5))
    run = config(step=StepConfig(micro_batch=100), later={1: 500})
    found = estimate(run, INFO, LENGTHS, accelerators=[gpu]).forecasts[0]
    assert found.hours is not None
    assert found.hours * 3600 == pytest.approx(7000 * 12.5e9 / 50e12)


def test_a_tower_locked_in_part_takes_the_passes_of_its_trained_layers() -> None:
    gpu = Accelerator("test", 100, 50, 80, shares=(0.5, 0.5))

    def gigaflops(image_passes: float, **step) -> float:
        info = replace(INFO, cost=replace(INFO.cost, image_passes=image_passes))
        run = config(workers=2, step=StepConfig(**step))
        (found,) = estimate(run, info, LENGTHS, accelerators=[gpu]).forecasts
        assert found.pairs_per_s is not None
        return 2 * 50e3 / found.pairs_per_s

    # An image of 10 GFLOP, and captions of 2.5.
    assert gigaflops(1.0) == pytest.approx(10 + 3 * 2.5)
    assert gigaflops(2.5) == pytest.approx(2.5 * 10 + 3 * 2.5)
    # Micro-batches repeat the forward pass of all layers, checkpoints that of the trained ones.
    assert gigaflops(1.0, micro_batch=25) == pytest.approx(10 + 4 * 2.5)
    assert gigaflops(2.5, micro_batch=25) == pytest.approx(3.5 * 10 + 4 * 2.5)
    kept = {"checkpoint_activations": True}
    assert gigaflops(2.5, **kept) == pytest.approx((2.5 + 0.75) * 10 + 4 * 2.5)
    assert gigaflops(3.0, micro_batch=25, **kept) == pytest.approx(5 * 12.5)


def held_by(**changes):
    asked = {
        "batch": 4096, "local": 256, "micro_batch": 256, "tokens": 2.5, "tile": 1024,
        "compute": "packed", "autocast": True, "checkpointed": False,
    }  # fmt: skip
    return memory(INFO, **{**asked, **changes})


def test_gradients_are_counted_where_they_exist() -> None:
    """Of one worker while they are computed; of several always, in DDP's buckets."""
    image, text = 86_000_000 * 4, 110_000_000 * 4
    rest = 196_000_001 * 12
    several = held_by(batch=512, local=256)
    assert several.weights == rest + image + text + 4
    alone = held_by(batch=256, local=256)
    assert alone.weights == rest
    # In micro-batches the images go backward before the texts have gradients.
    assert held_by(batch=256, local=256, micro_batch=64).weights == rest + image

    # A small step is largest in the update, with all gradients and no activations.
    def nothing(*_):
        none = Activations(each=1.0, working=1.0)
        return TowerActivations(image=none, text=none)

    least = memory(
        replace(INFO, activations=nothing), batch=2, local=2, micro_batch=2, tokens=1, tile=2,
        compute="packed", autocast=True, checkpointed=False,
    )  # fmt: skip
    assert (least.weights, least.activations) == (rest + image + text + 4, 0)


def test_memory_is_the_sum_of_what_a_step_holds() -> None:
    held = held_by()
    assert held.weights == 196_000_001 * 16
    # Both towers, and what autocast copies of their weights.
    assert held.activations == 256 * 85e6 + 3e9
    assert held.working == pytest.approx(0.3 * 256 * 6e6)
    # Texts and their gradients, images and theirs, tiles, sums; and both as they travel.
    assert (
        held.loss
        == 2 * 4 * 4096 * 512
        + 2 * 4 * 256 * 512
        + 4 * 4 * 256 * 1024
        + 4 * (256 + 2 * 4096)
        + 2 * 4 * 4096 * 512
    )
    assert held.pixels == 256 * 224 * 224 * 3 * 2
    assert held.total == sum(
        [held.weights, held.activations, held.working, held.loss, held.pixels, held.reserve]
    )


def test_micro_batches_hold_one_tower_at_a_time() -> None:
    held = held_by(batch=512, local=512, micro_batch=64)
    assert held.activations == 64 * 60e6 + 2e9


def test_checkpointed_blocks_keep_their_input_and_one_is_there_again() -> None:
    held = held_by(batch=64, local=64, micro_batch=64, tokens=2, autocast=False, checkpointed=True)
    assert held.activations == 64 * 2 * (6e6 + 2e6) + 3e9
    assert held.working == pytest.approx(1.3 * 64 * 12e6)


def test_the_loss_at_65536_pairs_on_16_workers_takes_a_third_of_a_gigabyte() -> None:
    assert loss_bytes(batch=65_536, local=4_096, embed_dim=512, tile=1024) == pytest.approx(
        0.35e9, rel=0.02
    )


def test_a_micro_batch_is_suggested_where_the_batch_does_not_fit() -> None:
    # 10,000 pairs of 80 MB take 800 GB. In micro-batches of m: 62 MB each, beside 10 GB.
    found = estimate(
        config(pairs=10_000), INFO, np.full(10_000, 2), accelerators=[A100_80]
    ).forecasts[0]
    micro = found.micro_batch
    assert micro is not None
    assert micro % 8 == 0
    assert found.held.total <= 0.92 * 80e9
    # As few micro-batches as possible: with 10 % more they would not fit.
    assert found.held.total > 0.92 * 80e9 * 0.9


def test_a_suggested_micro_batch_has_room_for_captions_longer_than_most() -> None:
    # Texts are what is held: 1 MB an image, 100 MB a token, of 2.5 by turns of 1, 2, 3 and 4.
    def texts(*_):
        found = kept("packed", True, False)
        return replace(
            found, image=replace(found.image, each=1e6), text=replace(found.text, each=1e8)
        )

    info = replace(INFO, activations=texts)
    found = estimate(config(pairs=1000), info, LENGTHS, accelerators=[A100_80]).forecasts[0]
    same = estimate(
        config(pairs=1000), info, np.array([2, 3] * 500), accelerators=[A100_80]
    ).forecasts[0]
    assert found.micro_batch < same.micro_batch
    # Four standard deviations of a mean: of 1, 2, 3, 4 it is 1.12 by itself.
    fullest = 2.5 + 4 * np.sqrt(1.25 / found.micro_batch)
    least = found.micro_batch * fullest * 1e8 + 196_000_001 * 16 + 1e9 + 1.5e9
    assert 0.8 * 0.92 * 80e9 < least <= 0.92 * 80e9


def test_a_batch_that_fits_is_left_alone() -> None:
    found = estimate(config(), INFO, LENGTHS, accelerators=[A100_80]).forecasts[0]
    assert found.micro_batch == 100


def test_a_model_that_fits_nowhere_has_no_time() -> None:
    large = replace(INFO, image_parameters=10_000_000_000)
    found = estimate(config(), large, LENGTHS)
    assert all(each.micro_batch is None and each.hours is None for each in found.forecasts)
    assert "does not fit, even with 1" in render(found)


def test_one_worker_is_forecast_beside_eight() -> None:
    def workers(count):
        found = estimate(config(workers=count), INFO, LENGTHS, accelerators=[A100_80])
        return [each.workers for each in found.forecasts]

    assert workers(0) == workers(1) == [1, 8]
    assert workers(4) == [4]
    assert workers((2, 4)) == [2, 4]


def test_no_time_is_promised_for_hardware_without_an_estimate() -> None:
    v100 = find_accelerator("Tesla V100-SXM2-32GB")
    assert v100 is not None
    found = estimate(config(), INFO, LENGTHS, accelerators=[v100])
    assert found.forecasts[0].hours is None
    assert "unknown" in render(found)


def test_a_run_on_cpus_is_told_that_the_times_are_those_of_gpus() -> None:
    text = render(estimate(config(), INFO, LENGTHS, each_ms=1_000))
    assert "workers.gpus=0), whose time is not estimated" in text
    assert "add CPU nodes" not in text
    on_gpus = replace(config(), workers=PretrainWorkers(gpus=1))
    text = render(estimate(on_gpus, INFO, LENGTHS, each_ms=1_000))
    assert "not estimated" not in text
    assert "add CPU nodes" in text


def test_activations_that_the_peak_does_not_hold_are_said_to_be_freed() -> None:
    assert "freed before the update" not in render(estimate(config(), INFO, LENGTHS))
    few = replace(INFO, activations=lambda *how: TowerActivations(image=NOTHING, text=NOTHING))
    assert "freed before the update" in render(estimate(config(), few, LENGTHS))


def test_a_batch_larger_than_the_corpus_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"batch\.pairs"):
        estimate(config(pairs=2000), INFO, LENGTHS)


def test_the_text_has_the_numbers_and_fits_the_screen() -> None:
    text = render(estimate(config(pairs=1000, later={1: 500}), INFO, LENGTHS))
    assert max(map(len, text.splitlines())) <= 100
    expected = """
  image tower  86.0 M parameters, 224 px, 10.0 GFLOP forward
  epochs       1 of 1 steps of 1,000 pairs
  epochs       1 of 2 steps of 500 pairs
  run          3 steps, 2,000 pairs
  captions     2 tokens on average, 62% of the context
  a pair       37.5 GFLOP in training, by the lengths of the captions
               42.0 GFLOP with every caption padded to the context
    betas: [0.9, 0.98]
"""
    assert set(expected.splitlines()) <= set(text.splitlines())
    for accelerator in NAMED:
        assert f"8 x {accelerator.name}" in text


def test_rates_are_those_that_were_published() -> None:
    """LAION's runs on A100: 310 to 396 pairs/s a GPU with ViT-B/16, 73 to 105 with ViT-L/14."""

    def rate(gigaflops, accelerator, **step):
        cost = ForwardCost(int(gigaflops * 1e9), TextCost(0, 0, 0))
        (found,) = estimate(
            config(workers=2, step=StepConfig(**step)),
            replace(INFO, cost=cost), LENGTHS, accelerators=[accelerator],
        ).forecasts  # fmt: skip
        return found.pairs_per_s / 2

    # Forward of both towers with 77 tokens, as in open_clip's model_profile.csv.
    for_b16, for_l14 = 41.09, 175.33
    assert 310 <= rate(for_b16, A100_80) <= 396
    assert 73 <= rate(for_l14, A100_40) <= 105
    for known in NAMED:
        eager, compiled = (known.utilisation(compiled=on) for on in (False, True))
        assert eager < compiled < 0.2
    assert rate(for_l14, H100) / rate(for_l14, A100_80) == pytest.approx(935 / 559, rel=0.01)
    eager, compiled = (rate(for_b16, A100_80, compile=on) for on in (False, True))
    assert 1 < compiled / eager < 1.27


def test_eager_and_compiled_are_told_apart() -> None:
    (found,) = estimate(
        config(workers=2, step=StepConfig(compile=True)), INFO, LENGTHS, accelerators=[A100_40]
    ).forecasts
    assert found.hours == found.hours_compiled < found.hours_eager
    (other,) = estimate(
        config(workers=2, step=StepConfig(compile=False)), INFO, LENGTHS, accelerators=[A100_40]
    ).forecasts
    assert other.hours == other.hours_eager == found.hours_eager
    starred = [word for word in render(estimate(config(), INFO, LENGTHS)).split() if "*" in word]
    assert starred


def test_only_a_long_run_is_compiled_by_default() -> None:
    short, long = (
        estimate(config(epochs=epochs), INFO, LENGTHS, accelerators=[A100_80]).forecasts[0]
        for epochs in (2, 10_000)
    )
    assert short.hours == short.hours_eager < 0.5 < long.hours_eager
    assert long.hours == long.hours_compiled


def test_cpus_are_what_a_gpu_takes_by_what_a_pair_takes() -> None:
    # 1,333 pairs/s of 3.9 ms are 5.2 cores, or 8.67 vCPUs; 12.25 ms are 27.2.
    gpu = Accelerator("test", 100, 50, 80, "p4d", 12, shares=(0.5, 0.5))

    def told(px: int | None, cpus: float = 1) -> str:
        run = config(workers=2)
        run = replace(run, workers=replace(run.workers, cpus=cpus, gpus=1))
        found = estimate(run, INFO, LENGTHS, accelerators=[gpu], each_ms=rates.pair_ms(px))
        return render(found)

    assert rates.pair_ms(288) == pytest.approx(3.9)
    assert rates.pair_ms(None) == rates.pair_ms(5_000) == pytest.approx(12.25)
    assert rates.pair_ms(288) < rates.pair_ms(448) < rates.pair_ms(None)
    assert " 8.7 " in told(288)
    assert "too few" not in told(288)
    few = told(None)
    assert " 27.2 " in few
    assert "too few" in few
    assert "assemble training" in few
    # 2 x (27.2 - 11)
    assert "33 vCPUs" in few
    # Nodes must be added where images are small already.
    alone = told(288, cpus=4)
    assert "assemble training" not in alone
    assert "workers.data_cpus" in alone


def test_the_last_rate_of_a_machine_counts(monkeypatch) -> None:
    own = {"accelerators": ["H100"], "compile": True, "share": 0.3, "low": 0.29, "high": 0.31,
           "how": "measured", "source": "one H100"}  # fmt: skip
    published = rates._tables()
    monkeypatch.setattr(
        rates, "_tables", lambda: {**published, "training": [*published["training"], own]}
    )
    rates.training_rate.cache_clear()
    try:
        assert H100.utilisation(compiled=True) == 0.3
        assert H100.utilisation(compiled=False) == pytest.approx(0.079, rel=0.001)
        text = render(estimate(config(step=StepConfig(compile=True)), INFO, LENGTHS))
        assert "H100 compiled: 0.3 of the peak, measured" in text
    finally:
        monkeypatch.undo()
        rates.training_rate.cache_clear()


def test_what_the_cluster_orders_is_forecast_first() -> None:
    machines = yaml.safe_load(Path("cluster.yaml").read_text())["available_node_types"]
    ordered = {
        name: each["node_config"]["InstanceType"].split(".")[0] for name, each in machines.items()
    }
    # Of types that fit workers.accelerator=A100, Ray starts the highest priority.
    a100 = [n for n, each in machines.items() if "accelerator_type:A100" in each["resources"]]
    first = max(a100, key=lambda name: machines[name].get("priority", 0))
    assert NAMED[0].instance == ordered[first] == "p4d"
    trains = {n for n in machines if n.startswith(("a100", "h100"))}
    assert {ordered[name] for name in trains} <= {each.instance for each in NAMED}
    for name in trains:
        (each,) = (a for a in NAMED if a.instance == ordered[name])
        assert machines[name]["resources"]["CPU"] == 8 * each.vcpus


def test_a_batch_of_long_captions_at_64k_gets_a_micro_batch_that_fits() -> None:
    values = {
        **configs.recipe_settings(pretrain_config.RECIPES["bmc_longclip_512"]()),
        "corpus": "corpus",
        "out": "out",
    }
    long = configs.build(PretrainConfig, {**values, "batch.pairs": 65_536, "workers.count": 16})
    info = model_info(described(long.model))
    forecasts = estimate(long, info, np.full(65_536, 120)).forecasts
    # By hand: ViT-L/14 keeps 37.4 bytes for each of 24 layers, 257 tokens and 1,024 channels.
    for each in forecasts:
        image_gb = each.micro_batch * 37.4 * 24 * 257 * 1024 / 1e9
        least = image_gb + 16 * info.parameters / 1e9 + 2 * 304e6 / 1e9
        assert least < 0.95 * each.accelerator.memory_gb
        assert least > 0.75 * each.accelerator.memory_gb
