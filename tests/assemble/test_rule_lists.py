"""Lists of rules on the command line: added to, taken from, and never without retractions unasked."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from biovl.assemble import config as assemble_config
from biovl.assemble.config import AS_PUBLISHED, AssembleConfig
from biovl.assemble.rules import known_rules, make_rules
from biovl.chain import recipes as chain_recipes
from biovl.chain.command import from_command_line
from biovl.chain.links import links
from biovl.chain.steps import STEPS
from biovl.core import arguments as settings_arguments
from biovl.core import config as configs
from biovl.core.errors import ConfigError

ROOT = Path(__file__).parents[2]


def assembled(*changes: str, recipe: str = "small") -> AssembleConfig:
    arguments = [recipe, *("--set", "figures=f"), *("--set", "out=o")]
    for change in changes:
        arguments += ["--set", change]
    config, _ = settings_arguments.from_command_line(
        AssembleConfig, assemble_config.RECIPES, about=None, arguments=arguments
    )
    return config


def plain(config: AssembleConfig) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = configs.to_plain(config)["rules"]
    return rules


DEFAULT = list(map(configs.to_plain, assemble_config.DEFAULT_RULES))


def test_rules_are_added_to_those_of_the_recipe_and_removed_by_name() -> None:
    changed = assembled(
        "rules+=min_side(300)",
        "rules-=max_aspect",
        "rules+=license_groups(commercial, noncommercial)",
        "rules+=languages(allowed=en)",
        "rules+=none_of(publication_types, Review)",
        "rules+=years(maximum=2020)",
        'rules+={"name": "value_between", "column": "beauty", "minimum": 1}',
    )
    assert plain(changed) == [
        *(rule for rule in DEFAULT if rule["name"] != "max_aspect"),
        {"name": "min_side", "px": 300},
        {"name": "license_groups", "allowed": ["commercial", "noncommercial"]},
        {"name": "languages", "allowed": ["en"]},
        {"name": "none_of", "column": "publication_types", "forbidden": ["Review"]},
        {"name": "years", "maximum": 2020},
        {"name": "value_between", "column": "beauty", "minimum": 1},
    ]
    assert len(make_rules(changed.rules)) == 12
    filtered = assembled("rules-=any_of", recipe="concept_filtered")
    assert plain(filtered) == DEFAULT


def test_rules_change_in_the_chain_as_they_do_in_the_job(tmp_path: Path) -> None:
    given = [
        "assemble.rules+=years(2015)",
        "assemble.rules-=min_side",
        "assemble.rules+=min_side(9)",
    ]
    arguments = ["demo", "--set", f"folder={tmp_path}", "--set", f"source.path={tmp_path}"]
    for change in given:
        arguments += ["--set", change]
    chain, _ = from_command_line(STEPS, chain_recipes.RECIPES, about="", arguments=arguments)
    found = next(link.config for link in links(STEPS, chain) if link.step.name == "assemble")
    names = [rule.name for rule in found.rules]
    assert names.count("years") == 1
    assert plain(found)[-1] == {"name": "min_side", "px": 9}
    assert set(names) - {rule["name"] for rule in DEFAULT} == {"years"}


@pytest.mark.parametrize(
    "changes",
    [
        ['rules=["usable_image", "min_side(300)"]'],
        ['rules=[{"name": "usable_image"}]'],
        ["rules=[]"],
        ["rules-=not_retracted"],
        ["rules-=not_retracted", "rules+=min_side(300)"],
    ],
)
def test_no_list_lets_retracted_articles_in_unnoticed(
    changes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        assembled(*changes)
    said = capsys.readouterr().err
    assert "not_retracted" in said
    assert "retracted=keep" in said
    kept = assembled(*changes, "retracted=keep")
    assert "not_retracted" not in [rule.name for rule in kept.rules]


def test_retracted_articles_are_kept_on_purpose() -> None:
    kept = assembled("retracted=keep")
    assert plain(kept) == [rule for rule in DEFAULT if rule["name"] != "not_retracted"]
    assert configs.build(AssembleConfig, configs.to_plain(kept)) == kept
    assert plain(assembled('rules=["not_retracted", "has_caption"]')) == [
        {"name": "not_retracted"},
        {"name": "has_caption"},
    ]


@pytest.mark.parametrize("recipe", sorted(set(assemble_config.RECIPES) - set(AS_PUBLISHED)))
def test_every_recipe_of_our_own_leaves_retracted_articles_out(recipe: str) -> None:
    assert "not_retracted" in [rule.name for rule in assembled(recipe=recipe).rules]


@pytest.mark.parametrize("recipe", AS_PUBLISHED)
def test_recipes_of_the_papers_say_that_they_keep_retracted_articles(recipe: str) -> None:
    config = assembled(recipe=recipe)
    assert config.retracted == "keep"
    assert "not_retracted" not in [rule.name for rule in config.rules]
    dropped = assembled("retracted=drop", "rules+=not_retracted", recipe=recipe)
    assert dropped.rules[-1].name == "not_retracted"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("rules+=min_sides(3)", "did you mean min_side?"),
        ("rules-=min_sides", "did you mean min_side?"),
        ("rules+=min_side", "px: Field required"),
        ("rules+=min_side(3, 4)", "takes 1 settings (px), got 2"),
        ("rules+=years(minimun=3)", "did you mean minimum?"),
        ("rules+=min_side(many)", "px"),
        ("rule+=min_side(3)", "did you mean rules?"),
    ],
)
def test_a_mistyped_rule_is_told_at_once(
    change: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        assembled(change)
    assert said in capsys.readouterr().err


def test_help_shows_the_rules_that_hold_unless_told_otherwise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        settings_arguments.from_command_line(
            AssembleConfig, assemble_config.RECIPES, about=None, arguments=["--help"]
        )
    shown = " ".join(capsys.readouterr().out.split())
    default = configs.build(AssembleConfig, {"figures": "f", "out": "o"})
    assert plain(default) == DEFAULT
    assert f"rules (default {', '.join(map(str, default.rules))})" in shown
    assert "max_aspect(ratio=10)" in shown


def test_the_page_lists_every_rule_with_its_settings() -> None:
    text = (ROOT / "docs" / "assemble.md").read_text()
    section = text.partition("\n## Rules\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    assert all(about for _, _, about in rows)
    found = {name.strip("`"): re.findall(r"`([^`]+)`", settings) for name, settings, _ in rows}
    known = {
        name: [
            item.name if item.default is inspect.Parameter.empty
            # A tuple is a list in what a person types.
            else f"{item.name}={json.dumps(item.default)}"
            for item in inspect.signature(rule).parameters.values()
        ]
        for name, rule in known_rules().items()
    }  # fmt: skip
    assert len(rows) == len(known)
    assert found == known


def test_no_command_of_the_pages_lets_retracted_articles_in() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for listed in re.findall(r"rules=\[\{.*?\}\]|rules=\[\".*?\"\]", page.read_text()):
            assert "not_retracted" in listed, page
        assert "rules-=not_retracted" not in page.read_text()


def test_a_removed_rule_that_is_not_there_is_an_error() -> None:
    config = configs.build(AssembleConfig, {"figures": "f", "out": "o"})
    with pytest.raises(ConfigError, match=r"'years'.*not_retracted"):
        configs.override(config, {"rules-": "years"})
