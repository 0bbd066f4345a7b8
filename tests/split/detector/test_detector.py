"""The detector: what it learns, what it says of figures, and what it is read from."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import ArtifactError, ConfigError
from biovl.images.boxes import Box, enclosing
from biovl.split.detector.config import KIND, STRIDE, DetectorConfig
from biovl.split.detector.detector import CONFIG, LEAST, WEIGHTS, Detector, decode_boxes
from biovl.split.detector.figures import draw, draw_locally, figures_of_round, held_out
from biovl.split.detector.fitting import fit, square, view
from biovl.split.detector.model import Output, PanelNetwork
from biovl.split.detector.scoring import score
from biovl.split.detector.targets import boxes_of, loss_of, targets_of
from biovl.split.detector.training import DetectorTrainer
from biovl.split.detector_job import train

SETTINGS: dict[str, Any] = {
    "design.backbone": "test_resnet",
    "design.channels": 16,
    "design.size_px": 128,
    "drawing.strata": ["plain"],
    "drawing.figures": 4,
    "drawing.steps": 3,
    "optim.steps": 4,
    "optim.batch": 2,
    "optim.peak_lr": 3e-3,
    "optim.warmup_steps": 10,
    "validation_figures": 2,
    "validate_every": 2,
    "save_every": 1,
}


def config(out: Path, **changes: Any) -> DetectorConfig:
    return configs.build(DetectorConfig, {**SETTINGS, **changes, "out": str(out)})


def published(out: Path) -> Path:
    """Train for four steps and publish."""
    *_, last = train(config(out), draw_locally)
    notes = {"weights_sha256": last["weights_sha256"]}
    Draft(str(out)).publish(Manifest(kind=KIND, config={}, counts={}, notes=notes))
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("detector") / "out")


def test_it_learns_four_figures(tmp_path: Path) -> None:
    trainer = DetectorTrainer(config(tmp_path, **{"optim.steps": 1000}), draw_locally)
    figures = draw([(seed, "plain") for seed in range(4)], 128)
    pages = [square(figure.pixels_HWC, 128) for figure in figures]
    moved = [
        figure.boxes_N4 + np.array([page.left, page.top] * 2, np.float32)
        for figure, page in zip(figures, pages, strict=True)
    ]
    targets = targets_of(moved, 128)
    detector = Detector(trainer.network, trainer.config.design, 0.3, trainer.device)
    found = {"f1": 0.0}
    while found["f1"] <= 0.9 and trainer.steps < 100:
        for _ in range(20):
            trainer.step([page.pixels_HWC for page in pages], targets)
            trainer.steps += 1
        found = score(detector, figures, ["plain"] * 4)
    assert found["f1"] > 0.9
    assert found["map"] > 0.8


def test_cells_say_where_a_panel_is_as_they_should() -> None:
    box = np.array([[16, 24, 112, 88]], np.float32)
    targets = targets_of([box], 128)
    assert torch.nonzero(targets.centre_BHW[0] == 1).tolist() == [[7, 8]]
    assert targets.weight_BHW.sum() == pytest.approx(1)
    # The cell's middle is at x 68, y 60.
    sides = torch.zeros(1, 4, 16, 16)
    sides[0, :, 7, 8] = torch.tensor([68 - 16, 60 - 24, 112 - 68, 88 - 60]) / 128
    assert boxes_of(sides)[0, :, 7, 8].tolist() == pytest.approx(box[0].tolist())
    logits = torch.full((1, 16, 16), -9.0)
    logits[0, 7, 8] = 9.0
    ((chance, corners),) = decode_boxes(Output(logits, sides), LEAST)
    assert chance > 0.99
    assert list(corners) == pytest.approx(box[0].tolist())


def test_the_loss_of_what_is_true_is_nearly_none() -> None:
    targets = targets_of([np.array([[16, 24, 112, 88]], np.float32)], 128)
    cells = targets.boxes_BHW4
    middle = (torch.arange(16) + 0.5) * STRIDE
    x, y = middle[None, None, :], middle[None, :, None]
    left, top = x - cells[..., 0], y - cells[..., 1]
    right, bottom = cells[..., 2] - x, cells[..., 3] - y
    sides = torch.stack([left, top, right, bottom], 1) / 128
    logits = torch.where(targets.centre_BHW == 1, 12.0, -12.0)
    assert loss_of(Output(logits, sides), targets) < 0.01
    assert loss_of(Output(-logits, sides), targets) > 10
    assert loss_of(Output(logits, sides * 0.3), targets) > 1


def test_figures_without_panels_have_a_loss() -> None:
    targets = targets_of([np.zeros((0, 4), np.float32)], 128)
    output = Output(torch.full((1, 16, 16), -9.0), torch.full((1, 4, 16, 16), 0.1))
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


def test_what_was_published_gives_the_same_boxes_wherever_it_is_loaded(folder: Path) -> None:
    (figure,) = draw([(7, "plain")], 300)
    first, second = (Detector.load(str(folder)) for _ in range(2))
    found = first.propose(figure.pixels_HWC, least=LEAST)
    assert found == second.propose(figure.pixels_HWC, least=LEAST)
    assert found == sorted(found, key=lambda one: -one.score)
    assert "F1@0.5" in (folder / "README.md").read_text()
    assert set(json.loads((folder / "metrics.json").read_text())["strata"]) == {"plain"}


@pytest.mark.parametrize("size", [(1, 1), (1, 900), (900, 2), (50, 50)])
def test_figures_of_any_size_are_looked_at(folder: Path, size: tuple[int, int]) -> None:
    pixels = np.zeros((*size, 3), np.uint8)
    for one in Detector.load(str(folder)).propose(pixels, least=LEAST):
        whole = Box(0, 0, size[1], size[0])
        assert enclosing([whole, one.box]) == whole


def test_a_killed_training_goes_on_and_ends_in_the_same_weights(
    folder: Path, tmp_path: Path
) -> None:
    def killed_after(steps: int) -> Iterator[dict[str, Any]]:
        for row in train(config(tmp_path), draw_locally):
            yield row
            steps -= "note" in row
            if not steps:
                return

    list(killed_after(2))
    before, *_ = train(config(tmp_path), draw_locally)
    assert before == {"before": 2}
    for name in (WEIGHTS, CONFIG, "metrics.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        (WEIGHTS, lambda data: data[:-1], WEIGHTS),
        (WEIGHTS, lambda data: None, WEIGHTS),
        (CONFIG, lambda data: data.replace(b"16", b"24"), f"{WEIGHTS}.*{CONFIG}"),
        (CONFIG, lambda data: b"[]", CONFIG),
        (CONFIG, lambda data: data.replace(b"test_resnet", b"no_such"), "no_such"),
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


def test_backbones_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="'no_such'"):
        PanelNetwork(
            configs.build(DetectorConfig, {"design.backbone": "no_such", "out": "x"}).design
        )
    with pytest.raises(ConfigError, match=r"size_px.*32.*100"):
        configs.build(DetectorConfig, {"design.size_px": 100, "out": "x"})
    with pytest.raises(ConfigError, match=r"strata.*none such"):
        configs.build(DetectorConfig, {"drawing.strata": ["none such"], "out": "x"})


def test_a_corrupt_checkpoint_is_skipped_for_the_one_before(tmp_path: Path) -> None:
    steps = DetectorTrainer(config(tmp_path), draw_locally).run()
    assert [next(steps).steps for _ in range(3)] == [1, 2, 3]
    last = tmp_path / ".draft" / "checkpoints" / "000000003.pt"
    changed = bytearray(last.read_bytes())
    changed[len(changed) // 2] ^= 1
    last.write_bytes(changed)
    assert DetectorTrainer(config(tmp_path), draw_locally).steps == 2
