"""The notebook runs from its first cell to its last, in an empty folder."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    notebook = json.loads(NOTEBOOK.read_text())
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_the_notebook_has_no_results_and_its_links_lead_somewhere() -> None:
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells("code"))
    text = "".join(line for cell in cells("markdown") for line in cell["source"])
    links = re.findall(r"\]\(([^()#\s]+)", text)
    assert links
    assert all((NOTEBOOK.parent / link).exists() for link in links)


@pytest.mark.ray
def test_the_notebook_runs(
    ray_session: None,
    put_packages: Callable[[Path, int], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in cells("code"):
        text = "".join(cell["source"])
        exec(compile(text.replace("articles=12", "articles=1"), cell["id"], "exec"), names)
        if "articles=12" in text:
            # Those that are drawn once for all tests.
            put_packages(names["folder"] / "packages", 12)
    assert names["files"]["txt"].decode() == names["pair"]["caption"]
    assert names["corpus"].counts["pairs"]["train"] > 0
    assert (names["image_ND"] @ names["text_ND"].T).shape == (1, 2)
