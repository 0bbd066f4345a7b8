"""What a page points at is there: files, pages, and headings of pages."""

import re

import pytest

from tests.docs.pages import ROOT, pages

_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """Return what GitHub calls the headings of a page."""
    text = _CODE.sub("", (ROOT / page).read_text())
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    }


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    text = _CODE.sub("", (ROOT / page).read_text())
    for link in _LINK.findall(text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        found = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert found.exists(), f"{page} leads to {link}, which is not there"
        if anchor:
            other = found.relative_to(ROOT).as_posix()
            assert anchor in anchors(other), f"{other} has no heading {anchor}"


def test_every_page_is_found_from_the_readme() -> None:
    linked = set(_LINK.findall((ROOT / "README.md").read_text()))
    assert set(pages()) - {"README.md"} <= {link.partition("#")[0] for link in linked}


def test_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/.]+/[\w.]+\.(?:py|yaml))`", text))
    assert len(named) > 30
    lost = {
        name
        for name in named
        if not any((at / name).exists() for at in (ROOT, ROOT / "platform/biovl"))
    }
    assert lost == set()
