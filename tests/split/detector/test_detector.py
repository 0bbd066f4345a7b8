"""The detector: what it learns, what it says of figures, and what it is read from."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import ArtifactError, ConfigError
from biovl.images.boxes import Box, enclosing
from biovl.sample.compound.pool import pool
from biovl.sample.compound.strata import VARIED
from biovl.split.detector.boxes import LEAST, Maps, decode_boxes
from biovl.split.detector.config import KIND, STRIDE, DetectorConfig
from biovl.split.detector.detector import CONFIG, WEIGHTS, Detector, onnx_run
from biovl.split.detector.export import to_onnx, torch_run
from biovl.split.detector.figures import draw, figures_of_round, held_out
from biovl.split.detector.fitting import Fitted, fit, square, view
from biovl.split.detector.model import Output, PanelNetwork, boxes_of
from biovl.split.detector.scoring import score
from biovl.split.detector.targets import loss_of, targets_of
from biovl.split.detector.training import DetectorTrainer
from biovl.split.detector_job import train

SETTINGS: dict[str, Any] = {
    "design.widths": [8, 12, 16, 24, 32],
    "design.depths": [0, 0, 0, 1, 1],
    "design.channels": 16,
    "design.size_px": 128,
    "drawing.strata": ["plain"],
    "drawing.photographs": 6,
    "drawing.plots": 12,
    "drawing.figures": 4,
    "drawing.steps": 3,
    "optim.steps": 4,
    "optim.batch": 2,
    "optim.peak_lr": 3e-3,
    "optim.warmup_steps": 10,
    "optim.decay_steps": 2,
    "optim.average_steps": 2,
    "validation_figures": 2,
    "validate_every": 2,
    "save_every": 1,
}


def draw_here(*figures: Any) -> Callable[[], list[Fitted]]:
    return partial(draw, *figures)


def config(out: Path, **changes: Any) -> DetectorConfig:
    return configs.build(DetectorConfig, {**SETTINGS, **changes, "out": str(out)})


def published(out: Path) -> Path:
    """Train for four steps and publish."""
    *_, last = train(config(out), draw_here)
    notes = {"weights_sha256": last["weights_sha256"]}
    Draft(str(out)).publish(Manifest(kind=KIND, config={}, counts={}, notes=notes))
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("detector") / "out")


def test_it_learns_four_figures(tmp_path: Path) -> None:
    trainer = DetectorTrainer(config(tmp_path, **{"optim.steps": 1000}), draw_here)
    figures = draw([(seed, "plain") for seed in range(4)], trainer.config, 0)
    pages = [square(figure.pixels_HWC, 128) for figure in figures]
    moved = [
        figure.boxes_N4 + np.array([page.left, page.top] * 2, np.float32)
        for figure, page in zip(figures, pages, strict=True)
    ]
    targets = targets_of(moved, 128)
    found = {"f1": 0.0}
    while found["f1"] <= 0.9 and trainer.steps < 300:
        for _ in range(20):
            trainer.step([page.pixels_HWC for page in pages], targets)
            trainer.steps += 1
        run = torch_run(trainer.network, trainer.device)
        found = score(Detector(run, 128, 0.3), figures, ["plain"] * 4)
    assert found["f1"] > 0.9
    assert found["map"] > 0.8
    assert found["compound_accuracy"] == 1


BOX = np.array([[16, 24, 112, 88]], np.float32)
"""Its centre is in row 7, column 8."""


def test_cells_say_where_a_panel_is_as_they_should() -> None:
    targets = targets_of([BOX], 128)
    inside = targets.weight_BHW[0] > 0
    assert inside.nonzero().tolist() == [[y, x] for y in range(3, 11) for x in range(2, 14)]
    assert targets.boxes_BHW4[0][inside].unique(dim=0).tolist() == BOX.tolist()
    assert targets.weight_BHW.sum() == pytest.approx(1)
    # A quarter of the panel, half as wide and half as high, has scores.
    assert (targets.central_BHW > 0).sum() == inside.sum() / 4
    left, top, right, bottom = (one.nonzero().tolist() for one in targets.edges_B4HW[0])
    assert left == [[y, 2] for y in range(3, 11)]
    assert right == [[y, 14] for y in range(3, 11)]
    assert top == [[3, x] for x in range(2, 14)]
    assert bottom == [[11, x] for x in range(2, 14)]
    assert targets.compound_B.tolist() == [0]


def test_an_inset_is_not_the_panel_around_it() -> None:
    around, inset = [0, 0, 128, 128], [48, 48, 80, 80]
    targets = targets_of([np.array([around, inset], np.float32)], 128)
    assert targets.boxes_BHW4[0, 8, 8].tolist() == inset
    assert targets.boxes_BHW4[0, 0, 0].tolist() == around
    # The cells around the inset are near enough to the centre of the panel.
    assert targets.boxes_BHW4[0][targets.central_BHW[0] > 0].unique(dim=0).tolist() == [
        around,
        inset,
    ]
    tiny = [50, 50, 52, 52]
    (own,) = targets_of([np.array([around, tiny], np.float32)], 128).boxes_BHW4[:, 6, 6].tolist()
    assert own == tiny


def test_overlapping_boxes_are_one_with_the_mean_of_their_sides() -> None:
    score, boxes = np.zeros((4, 4), np.float32), np.zeros((4, 4, 4), np.float32)
    score[0, :3], score[3, 3] = (0.4, 0.8, 0.4), 0.06
    boxes[:, 0, 0], boxes[:, 0, 1] = (1, 0, 10, 20), (0, 0, 10, 20)
    boxes[:, 0, 2], boxes[:, 3, 3] = (0, 0, 12, 20), (0, 20, 10, 24)
    (first, corners), (second, other) = decode_boxes(Maps(score, boxes, 1.0), LEAST)
    assert first == pytest.approx(0.8)
    assert second == pytest.approx(0.06)
    assert other == pytest.approx([0, 20, 10, 24])
    assert corners == pytest.approx([0.25, 0, 10.5, 20])
    assert decode_boxes(Maps(score * 0, boxes, 0.0), 0) == []


def test_the_loss_of_what_is_true_is_nearly_none() -> None:
    targets = targets_of([BOX], 128)
    middle = (torch.arange(16) + 0.5) * STRIDE
    x, y = middle[None, None, :], middle[None, :, None]
    cells = targets.boxes_BHW4
    left, top = x - cells[..., 0], y - cells[..., 1]
    right, bottom = cells[..., 2] - x, cells[..., 3] - y
    sides = torch.stack([left, top, right, bottom], 1)
    logits = torch.where(targets.central_BHW > 0, 12.0, -12.0)
    edges = torch.where(targets.edges_B4HW > 0, 12.0, -12.0)
    single = torch.tensor([-12.0])
    assert loss_of(Output(logits, sides, edges, single), targets) < 0.01
    assert loss_of(Output(-logits, sides, edges, single), targets) > 10
    assert loss_of(Output(logits, sides * 0.3, edges, single), targets) > 1
    assert loss_of(Output(logits, sides, -edges, single), targets) > 1
    assert loss_of(Output(logits, sides, edges, -single), targets) > 1
    assert torch.allclose(boxes_of(sides).permute(0, 2, 3, 1), cells)


def test_figures_without_panels_have_a_loss() -> None:
    targets = targets_of([np.zeros((0, 4), np.float32)], 128)
    sides = torch.full((1, 4, 16, 16), 9.0)
    output = Output(torch.full((1, 16, 16), -9.0), sides, sides - 18, torch.tensor([-9.0]))
    assert 0 <= loss_of(output, targets) < 0.01


def test_boxes_come_back_from_the_square() -> None:
    pixels = np.zeros((300, 600, 3), np.uint8)
    page = square(pixels, 128)
    assert (page.left, page.top) == (0, 32)
    assert page.in_figure((64, 32, 128, 96)) == Box(300, 0, 600, 300)
    assert page.in_figure((-9, 0, 500, 500)) == Box(0, 0, 600, 300)


def test_boxes_stay_on_their_panels_however_a_figure_is_shown() -> None:
    pixels = np.zeros((60, 100, 3), np.uint8)
    pixels[10:30, 20:70] = 200
    fitted = fit(pixels, [Box(20, 10, 70, 30)], 128)
    for seed in range(40):
        shown, ((x0, y0, x1, y1),) = view(fitted, 128, np.random.default_rng(seed))
        inside = shown[round(y0) + 3 : round(y1) - 3, round(x0) + 3 : round(x1) - 3].mean()
        # Coloured by up to a third, or inverted on what was black.
        assert inside > (100 if inside > 60 else 35)
        assert min(x0, y0) > -1
        assert max(x1, y1) < 129


def test_training_and_validation_see_other_figures(tmp_path: Path) -> None:
    here = config(tmp_path)
    rounds = [set(figures_of_round(here, number)) for number in range(3)]
    assert [len(figures) for figures in rounds] == [4, 4, 4]
    assert not set.intersection(*rounds)
    assert not set.union(*rounds) & set(held_out(here))


def test_a_pool_makes_the_same_figures_in_any_process(tmp_path: Path) -> None:
    here = config(tmp_path, **{"drawing.varied": 0.5})
    pairs = figures_of_round(here, 0)
    assert {stratum for _, stratum in figures_of_round(here, 1) + pairs} == {"plain", VARIED}
    first = draw(pairs, here, 0)
    pool.cache_clear()
    for one, other in zip(first, draw(pairs, here, 0), strict=True):
        assert np.array_equal(one.pixels_HWC, other.pixels_HWC)
        assert np.array_equal(one.boxes_N4, other.boxes_N4)
    # Other rounds have other contents after a while.
    assert not np.array_equal(draw(pairs, here, 100)[0].pixels_HWC, first[0].pixels_HWC)


def test_what_was_published_gives_the_same_boxes_wherever_it_is_loaded(folder: Path) -> None:
    (figure,) = draw([(7, "plain")], config(folder), None)
    first, second = (Detector.load(str(folder)) for _ in range(2))
    found = first.detect(figure.pixels_HWC, least=LEAST)
    assert found == second.detect(figure.pixels_HWC, least=LEAST)
    assert found.proposals == sorted(found.proposals, key=lambda one: -one.score)
    assert "F1@0.5" in (folder / "README.md").read_text()
    assert set(json.loads((folder / "metrics.json").read_text())["strata"]) == {"plain"}


def test_onnx_runtime_computes_what_pytorch_does(tmp_path: Path) -> None:
    torch.manual_seed(1)
    network = PanelNetwork(config(tmp_path).design).eval()
    torch.nn.init.normal_(network.heads.weight, std=5)
    data = to_onnx(network, 128)
    assert to_onnx(network, 128) == data
    pixels = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    maps = onnx_run(data, "memory")(pixels)
    wanted = torch_run(network, torch.device("cpu"))(pixels)
    # The file has half the precision.
    assert np.abs(maps.score_HW - wanted.score_HW).max() < 0.01
    assert np.abs(maps.boxes_4HW - wanted.boxes_4HW).max() < 1
    assert maps.compound == pytest.approx(wanted.compound, abs=0.01)
    assert np.ptp(wanted.score_HW) > 0.05


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 2), (50, 50)])
def test_figures_of_any_size_are_looked_at(folder: Path, size: tuple[int, int]) -> None:
    pixels = np.zeros((*size, 3), np.uint8)
    for one in Detector.load(str(folder)).detect(pixels, least=LEAST).proposals:
        whole = Box(0, 0, size[1], size[0])
        assert enclosing([whole, one.box]) == whole


def test_a_killed_training_goes_on_and_ends_in_the_same_weights(
    folder: Path, tmp_path: Path
) -> None:
    def killed_after(steps: int) -> Iterator[dict[str, Any]]:
        for row in train(config(tmp_path), draw_here):
            yield row
            steps -= "note" in row
            if not steps:
                return

    list(killed_after(2))
    before, *_ = train(config(tmp_path), draw_here)
    assert before == {"before": 2}
    for name in (WEIGHTS, CONFIG, "metrics.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        (WEIGHTS, lambda data: data[:-1], WEIGHTS),
        (WEIGHTS, lambda data: None, WEIGHTS),
        (CONFIG, lambda data: b"[]", CONFIG),
        (CONFIG, lambda data: data.replace(b"size_px", b"side"), "size_px"),
        (
            "manifest.json",
            lambda data: data.replace(b'"detector"', b'"model"'),
            "model, expected detector",
        ),
    ],
)
def test_damaged_and_foreign_weights_are_refused(
    folder: Path, tmp_path: Path, name: str, damage: Any, says: str
) -> None:
    for path in folder.glob("*.*"):
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    data = damage((tmp_path / name).read_bytes())
    (tmp_path / name).unlink() if data is None else (tmp_path / name).write_bytes(data)
    with pytest.raises(ArtifactError, match=says):
        Detector.load(str(tmp_path))


def test_a_file_that_is_no_network_is_refused() -> None:
    with pytest.raises(ArtifactError, match=r"model\.onnx is not an ONNX file"):
        onnx_run(b"nothing", "model.onnx")


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="must have 5 numbers"):
        configs.build(DetectorConfig, {"design.widths": [8, 16], "out": "x"})
    with pytest.raises(ConfigError, match=r"size_px.*32.*100"):
        configs.build(DetectorConfig, {"design.size_px": 100, "out": "x"})
    with pytest.raises(ConfigError, match=r"strata.*none such"):
        configs.build(DetectorConfig, {"drawing.strata": ["none such"], "out": "x"})


def test_a_corrupt_checkpoint_is_skipped_for_the_one_before(tmp_path: Path) -> None:
    steps = DetectorTrainer(config(tmp_path), draw_here).run()
    assert [next(steps).steps for _ in range(3)] == [1, 2, 3]
    last = tmp_path / ".draft" / "checkpoints" / "000000003.pt"
    changed = bytearray(last.read_bytes())
    changed[len(changed) // 2] ^= 1
    last.write_bytes(changed)
    assert DetectorTrainer(config(tmp_path), draw_here).steps == 2
