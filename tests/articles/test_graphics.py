"""The right file for a graphic, as packages really are."""

import pytest

from biovl.articles.content import FigureContent, Graphic
from biovl.articles.graphics import FileLookup


@pytest.mark.parametrize(
    ("href", "files", "found"),
    [
        ("g1.jpg", ["g1.jpg", "g2.jpg"], ["g1.jpg"]),
        ("g1", ["g1.jpg"], ["g1.jpg"]),
        ("G1", ["g1.JPG"], ["g1.JPG"]),
        (
            "pone.0000217.g001",
            ["pone.0000217.g001.tif", "pone.0000217.g002.tif"],
            ["pone.0000217.g001.tif"],
        ),
        ("g1.jpg", ["g1.gif", "g1.jpg", "g1.tif"], ["g1.jpg", "g1.gif", "g1.tif"]),
        ("g1.tif", ["g1.jpg"], ["g1.jpg"]),
        ("images/g1.jpg", ["images/g1.jpg", "g1.jpg"], ["images/g1.jpg"]),
        ("g1", ["figures/g1.png"], ["figures/g1.png"]),
        (
            "info:doi/10.1371/journal.pone.0038869.g001",
            ["pone.0038869.g001.tif"],
            ["pone.0038869.g001.tif"],
        ),
        ("elife-1-fig1", ["elife-1-fig1-v2.tif", "elife-1-fig10.tif"], ["elife-1-fig1-v2.tif"]),
        ("fig1", ["fig10.jpg", "fig11.jpg"], []),
        ("fig1", ["fig1-a.jpg", "fig1-b.jpg"], []),
        ("g1", ["g1.pdf", "g1.xlsx", "g1.docx"], ["g1.pdf"]),
        ("g1", [], []),
        ("", ["g1.jpg"], []),
        ("../../etc/passwd", ["g1.jpg"], []),
    ],
)
def test_candidates(href: str, files: list[str], found: list[str]) -> None:
    assert FileLookup(files).candidates([href]) == found


@pytest.mark.parametrize(
    ("files", "hrefs", "found"),
    [
        (
            ["figures/1.png", "supplement/1.png"],
            ["figures/1.png", "supplement/1.png"],
            [["figures/1.png"], ["supplement/1.png"]],
        ),
        (["A.png", "a.png"], ["A.png", "a.png"], [["A.png"], ["a.png"]]),
        # Only one of the two is named by its path; the other is of another folder.
        (["fig1.jpg", "fig1.tif", "supplement/fig1.jpg"], ["fig1.jpg"], [["fig1.jpg", "fig1.tif"]]),
        # The image of a figure is missing, and is not that of its supplement.
        (["fig2-figsupp1.tif"], ["fig2"], [[]]),
        (["fig2-supplement.jpg"], ["fig2.jpg"], [[]]),
        (["fig2-S1.jpg"], ["fig2.jpg"], [[]]),
        (["fig2_large.jpg"], ["fig2.jpg"], [["fig2_large.jpg"]]),
        (["fig1-figsupp1.png"], ["fig1", "fig1-figsupp1"], [[], ["fig1-figsupp1.png"]]),
        # One figure twice, as in a translation.
        (["fig1.jpg"], ["fig1.jpg", "fig1"], [["fig1.jpg"], ["fig1.jpg"]]),
    ],
)
def test_a_file_that_another_figure_names_is_not_taken(
    files: list[str], hrefs: list[str], found: list[list[str]]
) -> None:
    figures = [FigureContent(key=href, graphics=[Graphic([href])]) for href in hrefs]
    lookup = FileLookup(files, figures)
    assert [lookup.candidates([href]) for href in hrefs] == found


def test_all_alternatives_of_a_graphic_count_once() -> None:
    files = FileLookup(["full.jpg", "thumb.gif", "other.png"])
    assert files.candidates(["full", "thumb", "full"]) == ["full.jpg", "thumb.gif"]
