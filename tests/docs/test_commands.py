"""Every command of the pages is run, on a few drawn articles, or marked as needing more than here.

Each page's blocks run in one folder, in which what the README's first steps make is there.
"""

import json
import multiprocessing
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from biovl.concepts.votes import ReviewVote, write_votes
from tests.annotate.small_models import save_dinov2
from tests.docs import terminal
from tests.docs.checking import check
from tests.docs.pages import ROOT, Block, blocks, pages, words
from tests.serve.search.small_engine import drawn, jpeg, png

OWN_TESTS = ("docs/all.md", "docs/plan.md", "docs/reproduce.md")
"""Pages whose commands are run by the tests of their own rooms; here they are looked at."""

RUN = [page for page in pages() if page not in OWN_TESTS]
BLOCKS = [block for page in pages() for block in blocks(page) if block.language != "python"]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_commands_stand_in_blocks_of_bash_and_name_what_is_there(block: Block) -> None:
    assert block.needs in (None, "cloud", "gpu", "network")
    if block.language != "bash":
        assert block.language in ("console", "json", "yaml") or not block.has_commands
        return
    for command in block.commands():
        check(words(command))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where everything is run: a clone, as far as commands look at it."""
    path = tmp_path_factory.mktemp("newcomer")
    (path / "serve").symlink_to(ROOT / "serve")
    (path / "figure.png").write_bytes(png(drawn("red", "circle")))
    (path / "figure.jpg").write_bytes(jpeg(drawn("red", "circle")))
    save_dinov2(path / "dinov2")
    return path


@pytest.fixture(scope="module")
def in_terminal(
    folder: Path, put_packages: Callable[[Path, int], None]
) -> Iterator[Callable[..., Any]]:
    """Call a function of ``terminal`` in its process, where the README's first steps were made."""
    steps = next(b for b in blocks("README.md") if re.search(r"sample(\.py)? packages", b.text))
    with ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), terminal.begin, (folder,)
    ) as process:
        for command in steps.commands():
            process.submit(terminal.run, command).result()
            if "sample" in words(command):
                put_packages(folder / "packages", 12)
        # What several pages begin with: clusters that people have voted on, and their labels.
        for command in first_commands("docs/concepts.md"):
            process.submit(terminal.run, command).result()
        (folder / "votes.csv").write_bytes(votes(folder / "concepts"))
        for command in first_commands("docs/labels.md"):
            process.submit(terminal.run, command).result()
        kept = [c for b in blocks("docs/review.md") for c in b.commands() if "import" in c]
        process.submit(terminal.run, kept[0]).result()
        yield lambda function, *arguments: process.submit(function, *arguments).result()
        process.submit(terminal.end).result()


def first_commands(page: str) -> list[str]:
    return next(b for b in blocks(page) if b.language == "bash").commands()


def votes(concepts: Path) -> bytes:
    """Return what a reviewer said of each cluster, who took all for the same."""
    keys = pq.read_table(concepts / "clusters.parquet").select(["cluster_id", "key"]).to_pylist()
    said = {
        "reviewer": "ann",
        "panel_type": "single",
        "panel_subtype": None,
        "global_concepts": ("Microscopy",),
        "local_concepts": (),
        "created": "2025-03-01T12:00:00Z",
    }
    return write_votes(ReviewVote(**row, **said) for row in keys)


@pytest.mark.ray
@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_do_what_they_say(
    page: str, in_terminal: Callable[..., Any]
) -> None:
    for block in blocks(page):
        if block.word:
            continue
        if block.language == "python" and "biovl.client" not in block.text:
            in_terminal(terminal.python, block.text, str(block))
        elif block.language == "bash":
            for command in block.commands():
                in_terminal(terminal.run, command)


@pytest.mark.ray
@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("docs/harvest.md", "figures"),
        ("docs/annotate.md", "figures/columns/dinov2"),
        ("docs/concepts.md", "concepts"),
        ("docs/labels.md", "labels"),
        ("docs/assemble.md", "corpus"),
        ("docs/pretrain.md", "model"),
        ("docs/finetune.md", "adapted"),
        ("docs/index.md", "index"),
    ],
)
def test_what_a_page_shows_of_a_folder_is_there(
    page: str, name: str, folder: Path, in_terminal: Callable[..., Any]
) -> None:
    tree = next(block.text for block in blocks(page) if block.text.startswith(f"{name}/\n"))
    for line in tree.splitlines()[1:]:
        for shown in line[2:].split("   ")[0].replace("…", "").split():
            assert (folder / name / shown).exists(), shown


@pytest.mark.ray
def test_serve_run_answers_the_search_that_follows_it(in_terminal: Callable[..., Any]) -> None:
    steps = [command for block in blocks("README.md") for command in block.commands()]
    start = next(command for command in steps if command.startswith("serve run"))
    search = next(command for command in steps if command.startswith("curl"))
    assert len(json.loads(in_terminal(terminal.serve_and_ask, start, search))["results"]) == 3
