"""The release: its version is the same wherever it is written."""

import yaml

import biovl
from tests.docs.pages import ROOT


def test_the_version_is_cited_and_in_the_changelog() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == biovl.__version__
    headings = [
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")
    ]
    assert headings[0] == "## Unreleased"
    assert headings[1] == f"## {biovl.__version__} ({cited['date-released']})"
