"""A chain of the real jobs is refused before anything is done for what would stop it in the end."""

import runpy
import sys
from pathlib import Path

import pytest

from biovl.chain import recipes as chain_recipes
from biovl.chain.command import from_command_line
from biovl.chain.job import run_chain
from biovl.chain.links import check, links
from biovl.chain.steps import STEPS
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import BiovlError
from tests.sweep.corpora import index_only

ROOT = Path(__file__).parents[3]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a package to read."""
    package = tmp_path / "packages" / "PMC1"
    package.mkdir(parents=True)
    (package / "a.nxml").write_text("<article/>")
    return tmp_path


def refusal(
    place: Path, capsys: pytest.CaptureFixture[str], *settings: str, recipe: str = "demo"
) -> str:
    """Return why a chain is refused, "" where it is not; both ways to ask must agree."""
    given = [f"folder={place}/story", f"source.path={place}/packages", *settings]
    arguments = [recipe, *(part for setting in given for part in ("--set", setting))]
    try:
        chain, _ = from_command_line(STEPS, chain_recipes.RECIPES, about="", arguments=arguments)
    except SystemExit:
        return capsys.readouterr().err
    said = ""
    try:
        check(links(STEPS, chain))
    except BiovlError as error:
        said = str(error)
    if said:
        with pytest.raises(BiovlError) as again:
            run_chain(chain)
        assert str(again.value) == said
    assert not (place / "story").exists()
    return said


def test_a_chain_without_a_mistake_passes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(place, capsys) == ""
    assert refusal(place, capsys, "split.recipe=default", "assemble.rules+=years(2015)") == ""
    assert refusal(place, capsys, "assemble.image.short_side_px=288") == ""


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("source.pth=x", "did you mean path?"),
        ("source.name=packges", "did you mean packages?"),
        ("harvest.packages_per_uni=3", "did you mean packages_per_unit?"),
        ("assemble.rules+=min_sid(3)", "did you mean min_side?"),
        ("assemble.rules+=any_of(global_concepts, Maps)", "assemble failed: rule"),
        ("assemble.text=long_caption", "assemble failed: text"),
        ("assemble.balance.cap=3", "assemble failed: balance.column"),
        ('assemble.columns=["nowhere"]', "assemble failed: nowhere has no manifest.json"),
        ("pretrain.model.image_sise=32", "did you mean image_size?"),
        ("pretrain.model.vision_cfg.layrs=3", "did you mean layers?"),
        ("pretrain.model.weights=/nowhere/w.pt", "'/nowhere/w.pt' is not a file"),
        ("pretrain.trackers+=wand", "pretrain failed: trackers"),
        ("pretrain.epoch=3", "did you mean epochs?"),
        ("pretrain.recipe=tniy", "did you mean tiny?"),
        ("pretrian.epochs=3", "did you mean pretrain?"),
        ("index.factory=IVF8,QQ", "index failed: "),
        ("index.previous=nowhere", "index failed: nowhere has no manifest.json"),
        ("benchmark.tasks.retrieval.resmples=3", "did you mean resamples?"),
        ("benchmark.tasks.more.name=retrievl", "retrievl"),
        ("benchmark.data_root=/nowhere", "benchmark failed: data_root"),
        ("split.confidence=0.3", "--set split.recipe=NAME adds it"),
    ],
)
def test_a_mistyped_setting_of_any_step_is_told_before_the_first(
    place: Path, capsys: pytest.CaptureFixture[str], setting: str, said: str
) -> None:
    assert said in refusal(place, capsys, setting)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["source.path=nowhere"], "harvest failed: source.path"),
        (["folder={place}/packages"], "harvest failed: out: "),
        (["split.recipe=default", "split.detector=nowhere"], "split failed: nowhere"),
        (["resolve.recipe=default", "resolve.votes=nowhere"], "resolve failed: the votes nowhere"),
    ],
)
def test_inputs_from_elsewhere_are_looked_at_first(
    place: Path, capsys: pytest.CaptureFixture[str], settings: list[str], said: str
) -> None:
    given = [setting.format(place=place) for setting in settings]
    recipe = "concepts" if "resolve.recipe=default" in given else "demo"
    assert said in refusal(place, capsys, *given, recipe=recipe)


def test_images_that_assemble_will_store_must_be_large_enough_for_the_model(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["assemble.image.short_side_px=288", "pretrain.data.crop_scale=[0.9,1]"]
    assert refusal(place, capsys, *small, "pretrain.model.image_size=224") == ""
    assert "427 px" in refusal(place, capsys, *small, "pretrain.model.image_size=384")
    larger = [*small, "pretrain.model.image_size=384", "assemble.image.short_side_px=427"]
    assert refusal(place, capsys, *larger) == ""


def test_a_corpus_from_elsewhere_is_looked_at_too(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left_out = [f"{step}.recipe=null" for step in ("harvest", "assemble", "index", "benchmark")]
    stored = {"image": {"short_side_px": 32}}
    corpus = index_only(place / "corpus", [9] * 64, config=stored)
    elsewhere = [*left_out, f"pretrain.corpus={corpus}"]
    assert "32 px" in refusal(place, capsys, *elsewhere)
    assert refusal(place, capsys, *elsewhere, "pretrain.data.small_images=enlarge") == ""
    Draft(str(place / "figures")).publish(Manifest(kind="figures", config={}, counts={}))
    told = refusal(place, capsys, *left_out, f"pretrain.corpus={place}/figures")
    assert "holds figures, expected corpus" in told


def test_the_dry_run_of_the_script_ends_with_the_reason(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    command = ["all.py", "demo", "--dry-run"]
    for setting in (f"folder={place}/story", f"source.path={place}/nowhere"):
        command += ["--set", setting]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "pipelines" / "all.py"), run_name="__main__")
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert f"{place}/nowhere" in said.err
    # What was asked for is shown all the same.
    assert "pretrain tiny" in said.out
    assert not (place / "story").exists()
