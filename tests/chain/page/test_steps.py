"""Which steps a chain has, what each reads, and whether it is done: with jobs of three lines."""

import dataclasses
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pytest

from biovl.chain import recipes as chain_recipes
from biovl.chain import reports
from biovl.chain.command import from_command_line
from biovl.chain.job import run_chain
from biovl.chain.links import Chain, Step, StepFailed, links, read_chain, refusal
from biovl.chain.steps import STEPS
from biovl.core import arguments as settings_arguments
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Input, Manifest, find_published, fingerprint
from biovl.core.errors import ConfigError
from biovl.pretrain import config as pretrain_config
from biovl.pretrain.config import PretrainConfig


@dataclass(frozen=True, kw_only=True)
class Grow:
    out: str
    seed: str = ""
    water: int = 1
    more: tuple[str, ...] = ()


def job(config: Grow, *, progress: TextIO = sys.stderr) -> Manifest:
    plain = configs.to_plain(config)
    del plain["out"]
    read = [uri for uri in (config.seed, *config.more) if uri]
    inputs = [Input(name="seed", uri=uri, fingerprint=fingerprint(uri)) for uri in read]
    done = find_published(config.out, "plant", plain, inputs)
    if done is not None:
        return done
    draft = Draft.begin(config.out, "plant", plain, inputs)
    if config.water == 0:
        raise ConfigError("it is too dry\nand dark")
    return draft.publish(Manifest(kind="plant", config=plain, inputs=inputs, counts={}))


def step(name: str, **reads: Any) -> Step:
    known = {
        "wet": lambda: Grow(out=configs.REQUIRED, water=5),
        "plain": lambda: Grow(out=configs.REQUIRED),
    }
    return Step(name=name, folder=f"{name}s", recipes=known, job=job, reads=reads)


GARDEN = (
    step("root"),
    step("leaf", seed="root"),
    step("thorn", seed="root"),
    step("fruit", seed="leaf", more=("thorn", "root")),
)
ALL = {"root.recipe": "plain", "leaf.recipe": "wet", "fruit.recipe": "plain"}


@pytest.fixture
def garden(tmp_path: Path) -> Callable[..., Chain]:
    def make(**values: Any) -> Chain:
        given = {name.replace("__", "."): value for name, value in values.items()}
        return read_chain(GARDEN, "test", {**ALL, "folder": f"{tmp_path}/", **given})

    return make


def grow(chain: Chain) -> None:
    for at in range(len(links(GARDEN, chain))):
        link = links(GARDEN, chain)[at]
        link.step.job(link.config)


def states(chain: Chain) -> list[tuple[str, str]]:
    return [(Path(link.out).name, link.state) for link in links(GARDEN, chain)]


def test_each_step_reads_what_another_publishes(garden: Callable, tmp_path: Path) -> None:
    root, leaf, fruit = (link.config for link in links(GARDEN, garden(leaf__water="7")))
    assert root == Grow(out=f"{tmp_path}/roots")
    assert leaf == Grow(out=f"{tmp_path}/leafs", seed=f"{tmp_path}/roots", water=7)
    # Of several, those that the chain has.
    assert fruit.more == (f"{tmp_path}/roots",)
    with_thorns = links(GARDEN, garden(thorn__recipe="plain"))
    assert with_thorns[-1].config.more == (f"{tmp_path}/thorns", f"{tmp_path}/roots")


def test_what_is_published_is_known_and_what_differs_is_told(garden: Callable) -> None:
    assert states(garden()) == [("roots", "to do"), ("leafs", "to do"), ("fruits", "to do")]
    grow(garden())
    assert {state for _, state in states(garden())} == {"published"}
    changed = garden(leaf__water=9)
    found = links(GARDEN, changed)
    assert [link.state for link in found] == ["published", "differs", "unchecked"]
    told = refusal(found[1], GARDEN, changed)
    assert "config.water: 5 -> 9" in told
    assert f"rm -r {changed.folder}/leafs\n  rm -r {changed.folder}/fruits" in told
    assert "roots\n" not in told
    # The last step alone, when it alone is changed.
    changed = garden(fruit__water=9)
    told = refusal(links(GARDEN, changed)[2], GARDEN, changed)
    assert told.count("rm -r") == 1


def test_with_a_name_what_differs_stands_beside_and_the_rest_is_shared(garden: Callable) -> None:
    grow(garden())
    named = garden(leaf__water=9, name="dry")
    expected = [("roots", "published"), ("leafs-dry", "to do"), ("fruits-dry", "to do")]
    assert states(named) == expected
    grow(named)
    assert {state for _, state in states(named)} == {"published"}
    assert {state for _, state in states(garden())} == {"published"}


def test_a_begun_folder_is_gone_on_with(garden: Callable, tmp_path: Path) -> None:
    chain = garden(root__water=0)
    with pytest.raises(ConfigError):
        grow(chain)
    assert states(chain)[0] == ("roots", "begun")


def test_a_step_can_be_left_out_if_what_it_publishes_is_elsewhere(garden: Callable) -> None:
    with pytest.raises(ConfigError, match=r"leaf .*root .*leaf\.seed=DIR"):
        links(GARDEN, garden(root__recipe=None))
    found = links(GARDEN, garden(root__recipe=None, leaf__seed="s3://roots"))
    assert [link.step.name for link in found] == ["leaf", "fruit"]
    assert found[0].config.seed == "s3://roots"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"branch__water": 1}, r"'branch\.water'.*root\.…"),
        ({"folder": ""}, "folder=DIR"),
        ({"name": "a/b"}, "name .*a/b"),
        ({"root__recipe": "dry"}, "root.*'dry'.*plain, wet"),
        ({"leaf__watr": 3}, r"leaf.*\n  watr"),
        ({name.replace(".", "__"): None for name in ALL}, r"STEP\.recipe=NAME"),
    ],
)
def test_a_mistake_is_told_before_anything_is_done(
    garden: Callable, tmp_path: Path, values: dict, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        run_chain(garden(**values), GARDEN)
    assert list(tmp_path.iterdir()) == []


def test_every_recipe_of_the_real_chain_is_valid(tmp_path: Path) -> None:
    for name, recipe in chain_recipes.RECIPES.items():
        values = {**recipe(), "folder": "s3://b/story", "source.path": str(tmp_path)}
        chain = read_chain(STEPS, name, values)
        names = [step.name for step in STEPS if step.name in chain.settings]
        assert names[-1] == ("cluster" if name == "concepts" else "benchmark")
        local = read_chain(STEPS, name, {**values, "folder": str(tmp_path)})
        assert [link.step.name for link in links(STEPS, local)] == names
        assert reports.plan(local, links(STEPS, local)).splitlines()[-1].startswith("harvest to do")


def test_a_setting_on_the_command_line_means_what_it_means_to_its_job(tmp_path: Path) -> None:
    settings = ["pretrain.model.image_size=32", 'pretrain.batch.later={"8":64}', "folder=2024_01"]
    given = [part for setting in [*settings, "source.path=x"] for part in ("--set", setting)]
    chain, shown = from_command_line(
        STEPS, chain_recipes.RECIPES, about="", arguments=["demo", *given, "--dry-run"]
    )
    assert shown
    assert chain.folder == "2024_01"
    assert chain.settings["harvest"]["source.path"] == "x"
    own = [text.removeprefix("pretrain.") for text in settings[:2]]
    own += ["corpus=2024_01/corpus", "out=2024_01/model"]
    # What the demo itself sets of the recipe.
    given_by = {key.removeprefix("pretrain."): value for key, value in chain_recipes.demo().items()}
    own += [f"{key}={given_by[key]}" for key in ("epochs", "validation.every_epochs")]
    expected, _ = settings_arguments.from_command_line(
        PretrainConfig,
        pretrain_config.RECIPES,
        about="",
        arguments=["tiny", *(part for setting in own for part in ("--set", setting))],
    )
    assert links(STEPS, chain)[2].config == expected
    assert expected.batch.later == {8: 64}


def test_the_commands_of_the_page_about_it_are_valid(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "all.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"biovl all (.+)", text)
    assert len(commands) >= 4
    for command in commands:
        chain, _ = from_command_line(
            STEPS, chain_recipes.RECIPES, about="", arguments=shlex.split(command)
        )
        local = dataclasses.replace(chain, folder=str(tmp_path))
        last = links(STEPS, local)[-1].step.name
        assert last == "benchmark" or (last == "cluster" and "concepts" in command)


@pytest.mark.ray
def test_a_failure_ends_with_the_step_and_its_reason(garden: Callable, ray_session: None) -> None:
    with pytest.raises(StepFailed) as failed:
        run_chain(garden(leaf__water=0), GARDEN)
    assert str(failed.value).endswith("leaf failed: it is too dry\nand dark")
    # What was before it stays.
    assert states(garden(leaf__water=0))[0] == ("roots", "published")
