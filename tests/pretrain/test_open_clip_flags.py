"""The table of open_clip's flags: all of them, and settings that exist."""

import argparse
import re
from pathlib import Path
from unittest import mock

import pytest
from open_clip_train import params

from biovl.core import config as configs
from biovl.models.builders import open_clip
from biovl.pretrain.config import PretrainConfig

PAGE = Path(__file__).parents[2] / "docs/pretrain.md"


def flags() -> set[str]:
    """The flags of the installed open_clip."""
    with mock.patch.object(argparse.ArgumentParser, "parse_args", autospec=True) as parse:
        parse.side_effect = StopIteration
        with pytest.raises(StopIteration):
            params.parse_args([])
    (parser, _), _ = parse.call_args
    return {option for action in parser._actions for option in action.option_strings}


def rows() -> list[tuple[str, str]]:
    """The two columns of the table."""
    section = PAGE.read_text(encoding="utf-8").partition("## Coming from open_clip\n")[2]
    section = section.partition("\n## ")[0]
    return [(row[1], row[2]) for row in re.finditer(r"^\| (.+?) \| (.+) \|$", section, re.M)]


def test_every_flag_of_open_clip_is_in_the_table_once() -> None:
    listed = [flag for left, _ in rows() for flag in re.findall(r"`(--[a-z0-9-]+)`", left)]
    assert len(listed) == len(set(listed))
    assert set(listed) == flags() - {"-h", "--help"}


def test_the_settings_of_the_table_exist() -> None:
    paths = list(configs.defaults(PretrainConfig))
    # Settings, and the sections that hold them.
    known = {".".join(path[:end]) for path in paths for end in range(1, len(path) + 1)}
    known |= {f"model.{name}" for (name,) in configs.defaults(open_clip.Config)}
    known |= {"batch.pairs"}
    named = {
        name
        for _, right in rows()
        for name in re.findall(r"`([a-z]+\.[a-z_]+)(?=[=`.])", right)
        if not name.endswith((".json", ".jsonl"))
    }
    assert len(named) > 30
    assert named <= known
