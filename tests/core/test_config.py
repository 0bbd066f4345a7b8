"""Settings: checked once, overridden one way, refused in the user's words."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import PositiveFloat, PositiveInt
from pydantic_core import PydanticSerializationError

from biovl.assemble import config as assemble_config
from biovl.assemble.config import AssembleConfig
from biovl.core import config
from biovl.core.arguments import from_command_line, settings_manual
from biovl.core.errors import ConfigError
from biovl.core.overrides import change_of, changes_of, merge_changes
from biovl.core.plugins import Plugin
from biovl.harvest import config as harvest_config
from biovl.harvest.config import HarvestConfig
from biovl.pretrain import config as pretrain_config
from biovl.pretrain.config import PretrainConfig


@dataclass(frozen=True, kw_only=True)
class Optim:
    """An inner configuration."""

    peak_lr: float = 1e-3
    """Learning rate at the end of warm-up."""

    warmup: int = 0

    def __post_init__(self) -> None:
        if self.peak_lr <= 0:
            raise ValueError(f"peak_lr must be positive, got {self.peak_lr}")


@dataclass(frozen=True, kw_only=True)
class Run:
    """An outer configuration."""

    out: str
    """Where to."""

    source: Plugin
    optim: Optim = field(default_factory=Optim)
    names: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    from_: str = ""
    """A keyword of Python."""


VALUES = {"out": "o", "source": {"name": "packages", "path": "p"}}


def test_plain_values_and_back() -> None:
    run = config.build(Run, {**VALUES, "optim.peak_lr": 0.5, "names": ["a"]})
    assert run == Run(
        out="o", source=Plugin("packages", {"path": "p"}), optim=Optim(peak_lr=0.5), names=("a",)
    )
    plain = config.to_plain(run)
    assert plain["source"] == {"name": "packages", "path": "p"}
    assert config.build(Run, plain) == run


def test_a_setting_may_be_called_as_a_keyword_of_python() -> None:
    run = config.build(Run, {**VALUES, "from": "a@1"})
    assert run.from_ == "a@1"
    assert config.override(run, {"from": "a@2"}).from_ == "a@2"
    plain = config.to_plain(run)
    assert plain["from"] == config.recipe_settings(run)["from"] == "a@1"
    assert config.build(Run, plain) == run
    assert config.defaults(Run)["from",] == ""
    assert any(
        line.strip() == "from (default '') A keyword of Python." for line in settings_manual(Run)
    )
    with pytest.raises(ConfigError, match=r"from_: .*did you mean from\?"):
        config.build(Run, {**VALUES, "from_": "a@1"})


@dataclass(frozen=True, kw_only=True)
class Limited:
    """Settings with ranges."""

    threshold: config.Share = 0.5
    sizes: tuple[PositiveInt, ...] = (1,)
    minutes: PositiveFloat | None = None
    later: Mapping[PositiveInt, config.Share] = field(default_factory=dict)


def test_settings_out_of_range_are_reported_together() -> None:
    values = {"threshold": 2, "sizes": [1, 0], "minutes": 0}
    with pytest.raises(ConfigError) as error:
        config.build(Limited, values)
    assert str(error.value).splitlines()[1:] == [
        "  threshold: Input should be less than or equal to 1 (got 2)",
        "  sizes.1: Input should be greater than 0 (got 0)",
        "  minutes: Input should be greater than 0 (got 0)",
    ]


def test_help_shows_ranges() -> None:
    assert [line.strip() for line in settings_manual(Limited)] == [
        "threshold (default 0.5, >= 0, <= 1)",
        "sizes (default (1,), > 0)",
        "minutes (default None, > 0)",
        "later (default {})",
    ]


def test_one_setting_is_overridden_and_the_rest_stays() -> None:
    run = config.build(Run, VALUES)
    changed = config.override(run, {"source.limit": 3, "optim.peak_lr": "0.25"})
    assert changed.source == Plugin("packages", {"path": "p", "limit": 3})
    assert changed.optim.peak_lr == 0.25
    assert changed.out == "o"


@pytest.mark.parametrize(
    ("changes", "shares"),
    [
        ({"shares": {"c": 3}}, {"c": 3}),
        ({"shares.c": 3}, {"a": 1, "b": 2, "c": 3}),
        ({"shares": {}}, {}),
        ({"shares": {"c": 3}, "shares.d": 4}, {"c": 3, "d": 4}),
        ({"shares.d": 4, "shares": {"c": 3}}, {"c": 3}),
    ],
)
def test_a_mapping_given_whole_replaces_and_an_entry_joins(changes: dict, shares: dict) -> None:
    run = config.build(Run, {**VALUES, "shares": {"a": 1, "b": 2}})
    assert config.override(run, changes).shares == shares


def test_a_plug_in_given_whole_replaces_its_settings_too() -> None:
    changed = config.override(config.build(Run, VALUES), {"source": {"name": "table", "x": 1}})
    assert changed.source == Plugin("table", {"x": 1})
    deep = config.build(Run, {**VALUES, "source.vision.layers": 3, "source.vision.width": 8})
    assert config.override(deep, {"source.vision": {"timm": "a"}}).source.settings == {
        "path": "p",
        "vision": {"timm": "a"},
    }


def test_a_section_given_as_a_mapping_stands_for_the_settings_it_names() -> None:
    run = config.build(Run, {**VALUES, "optim": {"peak_lr": 0.5}})
    assert config.override(run, {"optim": {"warmup": 3}}).optim == Optim(peak_lr=0.5, warmup=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optim.peak_lr": "fast"}, r"optim\.peak_lr: .*'fast'"),
        ({"optim.peak_lr": -1}, "peak_lr .*-1"),
        ({"optim.lr": 1}, r"optim\.lr: "),
        ({"colour": 1}, "colour: "),
    ],
)
def test_a_wrong_setting_is_named(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.build(Run, {**VALUES, **changes})


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"optim.warmup": True}, "optim.warmup"),
        ({"optim": {"peak_lr": True}}, "optim.peak_lr"),
        ({"shares": {"a": 0.5, "b": True}}, "shares.b"),
    ],
)
def test_a_boolean_is_no_number(changes: dict, name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"Run is not valid:\n  {name}: expected a number, got t"
    ):
        config.build(Run, {**VALUES, **changes})


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"optim": Optim(warmup=True)}, "optim.warmup"),
        ({"optim": Optim(peak_lr=True)}, "optim.peak_lr"),
        ({"shares": {"a": 0.5, "b": True}}, "shares.b"),
    ],
)
def test_a_boolean_given_in_python_is_no_number(changes: dict, name: str) -> None:
    given = Run(out="o", source=Plugin("packages"), **changes)
    with pytest.raises(
        ConfigError, match=rf"Run is not valid:\n  {name}: expected a number, got true"
    ):
        config.validated(given)


def test_every_missing_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"out: [\s\S]*source: "):
        config.build(Run, {})


def test_differences_are_told_by_dotted_name() -> None:
    old = {"a": {"b": 1, "c": 2}, "d": 3}
    new = {"a": {"b": 1, "c": 5}, "e": 4}
    assert config.differences(old, new) == [
        "a.c: 2 -> 5",
        "d: 3 -> '(absent)'",
        "e: '(absent)' -> 4",
    ]


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("./packages/", "packages", True),
        ("My data (1)//figures", "My data (1)/figures/", True),
        ("s3://bucket//a", "s3://bucket/a", False),
        ("a photo of {}/", "a photo of {}", False),
        ("T1//T2 [a-z]", "T1/T2 [a-z]", False),
        ("[0-9]/.", "[0-9]", False),
        (64, "64", True),
        ("3e-4", 0.0003, True),
        (64, "65", False),
        (64, "text", False),
        (True, "1", False),
    ],
)
def test_only_paths_and_numbers_are_the_same_in_another_spelling(
    old: object, new: object, is_same: bool
) -> None:
    assert config.is_same(old, new) == is_same
    assert bool(config.differences({"a": old}, {"a": new})) != is_same


def plain() -> Run:
    """A recipe."""
    return Run(out=config.REQUIRED, source=Plugin("packages"))


def other() -> Run:
    """Another."""
    return replace(plain(), optim=Optim(warmup=3))


RECIPES: dict[str, config.Recipe[Run]] = {"plain": plain, "changed": other}


def command_line(*arguments: str, recipes: Mapping[str, config.Recipe[Run]] = RECIPES) -> Run:
    flags = {"dry-run": "Say and stop."}
    run, given = from_command_line(Run, recipes, about="About.", flags=flags, arguments=arguments)
    assert given == ({"dry-run"} if "--dry-run" in arguments else set())
    return run


def test_the_name_of_the_only_recipe_may_be_left_out(tmp_path: Path) -> None:
    only: dict[str, config.Recipe[Run]] = {"only": other}
    expected = command_line("changed", "--set", "out=x")
    assert expected.optim.warmup == 3
    assert command_line("--set", "out=x", recipes=only) == expected
    assert command_line("only", "--set", "out=x", recipes=only) == expected
    assert command_line("--dry-run", "--set", "out=x", recipes=only) == expected
    file = tmp_path / "own.yaml"
    file.write_text("source: table")
    assert command_line(str(file), "--set", "out=x", recipes=only).source == Plugin("table")
    with pytest.raises(SystemExit) as ended:
        command_line("--set", "out=x")
    assert ended.value.code == 2


def test_a_recipe_is_completed_by_what_it_requires_and_by_nothing_else() -> None:
    assert config.is_unfinished(other())
    assert config.recipe_settings(other()) == {
        "source": {"name": "packages"},
        "optim": {"warmup": 3},
    }
    whole = config.override(other(), {"out": "o", "source.path": "p"})
    assert whole == Run(out="o", source=Plugin("packages", {"path": "p"}), optim=Optim(warmup=3))
    assert not config.is_unfinished(whole)
    with pytest.raises(ConfigError, match=r"^chained.*\n  out: .*$"):
        config.override(other(), {}, name="chained")


def test_a_recipe_cannot_be_taken_for_a_configuration() -> None:
    with pytest.raises(ConfigError):
        f"{other().out}/manifest.json"
    with pytest.raises(PydanticSerializationError):
        config.to_plain(other())
    with pytest.raises(ConfigError, match="out: "):
        config.build(Run, {**VALUES, "out": config.REQUIRED})


def test_a_flag_stands_beside_the_settings() -> None:
    assert command_line("plain", "--dry-run", "--set", "out=x").out == "x"


def test_the_command_line_changes_a_recipe() -> None:
    run = command_line(
        "plain", "--set", "out=2024", "--set", "source.path=s3://b/k=v", "--set", 'names=["x","y"]'
    )
    assert run.out == "2024"
    assert run.source == Plugin("packages", {"path": "s3://b/k=v"})
    assert run.names == ("x", "y")
    for name in ("2024_01", "1e3", "0x1f", "007", "None"):
        assert command_line("plain", "--set", f"out={name}").out == name
    assert (
        command_line("plain", "--set", "out=o", "--set", "optim.peak_lr=1e-2").optim.peak_lr == 0.01
    )


def test_the_last_of_several_settings_counts_in_the_order_given() -> None:
    def shares(*given: str) -> Mapping[str, float]:
        arguments = [part for text in given for part in ("--set", text)]
        return command_line("plain", "--set", "out=o", *arguments).shares

    assert shares('shares={"a":1}', "shares.b=2") == {"a": 1, "b": 2}
    assert shares("shares.b=2", 'shares={"a":1}') == {"a": 1}
    assert shares('shares={"a":1}', "shares.b=2", 'shares={"c":3}') == {"c": 3}


@pytest.mark.parametrize(
    ("recipe", "change", "setting", "expected"),
    [
        ("biomedclip_64k", 'batch.later={"4":128}', "batch.later", {4: 128}),
        ("biomedclip_64k", "batch.later.4=128", "batch.later", {4: 128, 8: 65_536}),
        ("tiny", 'data.text={"caption":1.0}', "data.text", {"caption": 1.0}),
    ],
)
def test_a_mapping_of_a_recipe_is_replaced_on_the_command_line(
    recipe: str, change: str, setting: str, expected: dict
) -> None:
    arguments = [recipe, *("--set", "corpus=c"), *("--set", "out=o"), *("--set", change)]
    run, _ = from_command_line(
        PretrainConfig, pretrain_config.RECIPES, about=None, arguments=arguments
    )
    assert operator.attrgetter(setting)(run) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plain"], "out: Field required"),
        (["plain", "--set", "out"], "--set takes NAME=VALUE, got 'out'"),
        (["plain", "--set", "names=[x"], "'[x' is not JSON"),
        (["plain", "--set", "names=[x]"], "Put texts in double quotes"),
        (
            ["plain", "--set", "out=o", "--set", "names=x"],
            """expected a list; for one item: --set 'names=["x"]'""",
        ),
        (
            ["plain", "--set", "out=o", "--set", "optim.peak_lr=-1"],
            "\n  optim: peak_lr must be positive, got -1.0\n",
        ),
        (["other", "--set", "out=x"], "no recipe called 'other'"),
    ],
)
def test_a_wrong_command_line_ends_with_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line(*arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_help_names_every_recipe_and_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line("--help")
    manual = capsys.readouterr().out
    for text in (
        "About.",
        "A recipe.",
        "out (required) Where to.",
        "optim.peak_lr (default 0.001)",
    ):
        assert text in manual


@pytest.mark.parametrize(
    ("cls", "known", "given"),
    [
        (HarvestConfig, harvest_config.RECIPES, {"source.path": "p", "out": "o"}),
        (AssembleConfig, assemble_config.RECIPES, {"figures": "f", "out": "o"}),
    ],
)
def test_every_recipe_is_complete_but_for_what_only_the_user_knows(
    cls: type, known: dict, given: dict
) -> None:
    for recipe in known.values():
        assert recipe.__doc__
        assert config.is_unfinished(recipe())
        built = config.override(recipe(), given)
        assert type(built) is cls
        assert config.build(cls, config.to_plain(built)) == built


@dataclass(frozen=True)
class Two:
    first: Plugin
    others: tuple[Plugin, ...] = (Plugin("c", {"x": 1}),)


def test_every_plug_in_of_a_configuration_is_written_flat() -> None:
    plain = {"first": {"name": "a", "x": 1}, "others": [{"name": "b", "y": "2"}]}
    built = config.build(Two, plain)
    assert built == Two(Plugin("a", {"x": 1}), (Plugin("b", {"y": "2"}),))
    assert config.to_plain(built) == plain
    assert config.to_plain(Two(Plugin("a")))["others"] == [{"name": "c", "x": 1}]


def test_what_an_earlier_version_did_not_have_is_filled_in_with_its_default() -> None:
    values = {
        **config.recipe_settings(pretrain_config.tiny()),
        "corpus": "c",
        "out": "o",
        "batch.later": {"4": 128},
    }
    now = config.to_plain(config.build(PretrainConfig, values))
    known = config.defaults(PretrainConfig)
    assert known["optim", "peak_lr"] == 5e-4
    assert known["workers", "accelerator"] is None
    assert ("corpus",) not in known
    old = config.to_plain(config.build(PretrainConfig, values))
    del old["optim"]["eps"], old["step"]["compile"], old["validation"], old["batch"]["later"]
    filled = config.with_defaults(old, now, known)
    # The entry of a free mapping is no setting: where one was given it shows.
    assert config.differences(filled, {**now, "validation": filled["validation"]}) == [
        "batch.later.4: '(absent)' -> 128"
    ]
    assert filled["validation"]["pairs"] == 10_000
    assert "eps" not in old["optim"]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (["names+=x"], ("a", "b", "x")),
        (['names+=["x","y"]', "names+=z"], ("a", "b", "x", "y", "z")),
        (["names-=a"], ("b",)),
        (["names-=a", "names+=a"], ("b", "a")),
        (["names+=b", "names-=b"], ("a",)),
        (['names=["c"]', "names+=d"], ("c", "d")),
        (["names+=d", 'names=["c"]'], ("c",)),
    ],
)
def test_items_are_added_to_a_list_and_removed_from_it(
    changes: list[str], names: tuple[str, ...]
) -> None:
    arguments = [part for change in changes for part in ("--set", change)]
    run = command_line("plain", "--set", "out=o", "--set", 'names=["a","b"]', *arguments)
    assert run.names == names
    # Given together, as recipes and sweeps do.
    given = dict(change_of(change) for change in changes)
    if len(given) == len(changes):
        known = config.build(Run, {**VALUES, "names": ["a", "b"]})
        assert config.override(known, given).names == names


def test_a_later_change_removes_what_an_earlier_one_adds() -> None:
    first, second = {"rules+": "a(1)"}, {"rules-": "a", "rules+": "a(2)"}
    assert merge_changes(first, second) == {"rules+": ["a(2)"]}
    assert merge_changes({"rules-": "b"}, first, {"rules-": "b"}) == {
        "rules-": ["b", "b"],
        "rules+": "a(1)",
    }
    # A list that is given whole is without earlier additions.
    assert merge_changes(first, {"rules": ["b"], "rules-": "a"}) == {"rules": ["b"], "rules-": "a"}
    # Within one change, a removal is of what the list has, too.
    assert merge_changes({"rules+": "a(1)", "rules-": "a"}) == {"rules+": "a(1)", "rules-": "a"}


def test_repeated_changes_are_together_and_none_is_lost() -> None:
    changes = ["names+=a", "epochs=2", 'names+=["b","c"]', "names-=d", "epochs=3"]
    assert changes_of(changes) == {
        "names+": ["a", "b", "c"], "names-": "d", "epochs": "3"
    }  # fmt: skip
    in_turns = changes_of(["names+=a", "names-=b", "names+=c", "names-=d"])
    assert list(in_turns.items()) == [("names-", ["b", "d"]), ("names+", ["a", "c"])]
    with pytest.raises(ConfigError, match="added and removed before"):
        changes_of(["names+=a(1)", "names-=a", "names+=c"])


def test_a_setting_that_a_file_has_twice_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "run.yaml"
    recipe.write_text("optim:\n  lr: 1\n  lr: 2\n")
    with pytest.raises(SystemExit):
        command_line(str(recipe))
    assert "'lr' occurs twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names-": "c"}, "names-=: .*'c'.*a, bear"),
        ({"names-": "bera"}, r"bear\?"),
        ({"out+": "x"}, r"out\+=: "),
        ({"name+": "x"}, r"'name'.* names\?"),
        ({"others-": "c(1)"}, "others-=: "),
    ],
)
def test_what_is_in_no_list_cannot_be_removed(change: dict, message: str) -> None:
    (name,) = change
    cls = Two if name.startswith("others") else Run
    values = {"first": "a"} if cls is Two else {**VALUES, "names": ["a", "bear"]}
    with pytest.raises(ConfigError, match=message):
        config.build(cls, {**values, **change})


def test_plug_ins_are_written_as_they_are_called() -> None:
    def others(*changes: tuple[str, object]) -> tuple[Plugin, ...]:
        run = config.build(Two, {"first": "a(x=1, y=[b, 2], z=null)"})
        assert run.first == Plugin("a", {"x": 1, "y": ["b", 2], "z": None})
        for name, value in changes:
            run = config.override(run, {name: value})
        return run.others

    c = Plugin("c", {"x": 1})
    assert others(("others+", "c(x=2)")) == (c, Plugin("c", {"x": 2}))
    assert others(("others+", "c(x=2)"), ("others-", "c(x=1)")) == (Plugin("c", {"x": 2}),)
    assert others(("others+", "c(x=2)"), ("others-", "c")) == ()
    assert others(("others+", [{"name": "d"}, "e"])) == (c, Plugin("d"), Plugin("e"))
    assert str(Plugin("a", {"x": 1, "y": ["b"]})) == 'a(x=1, y=["b"])'
    for wrong in ("c(", "c(x=1) or d(2)", "c(x=open())", "c(**d)", "c(1)(2)"):
        with pytest.raises(ConfigError, match=r"NAME\(VALUE\)"):
            config.build(Two, {"first": wrong})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("optim.warmpu", "optim.warmup"),
        ("warmup", "optim.warmup"),
        ("optim.lr", "optim.peak_lr"),
        ("outt", "out"),
        ("shares.x", None),
    ],
)
def test_a_mistyped_setting_is_answered_with_the_nearest_name(name: str, meant: str | None) -> None:
    if meant is None:
        assert config.build(Run, {**VALUES, name: 1})
        return
    with pytest.raises(ConfigError, match=rf" {meant}\?"):
        config.build(Run, {**VALUES, name: 1})


def test_names_that_look_like_nothing_known_are_not_guessed() -> None:
    with pytest.raises(ConfigError) as refused:
        config.build(Run, {**VALUES, "zzzzzz": 1})
    assert "?" not in str(refused.value)
