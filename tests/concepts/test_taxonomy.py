"""Names that votes may use: ours as the paper has them, and files of others."""

from pathlib import Path

import pytest

from biovl.concepts.taxonomy import PanelType, load_taxonomy, normalize_name
from biovl.core.errors import ConfigError

# BIOMEDICA, arXiv 2501.07171, section 14.6.
GLOBALS = """
    Clinical Imaging, Microscopy, Plots and Charts, Immuno Assays, Illustrative Diagrams,
    Scientific Formulae and Equations, Tables, Hand Drawn and Screen Based Visuals,
    Graph and Network, Chemical Structures, Maps, Tools and Materials, PCR
"""
# Figure 10: how many local concepts are below each; "drawing" is also where table 18 has it.
LOCALS = {
    **{"Ambiguous": 1, "Chemical Structures": 5, "Clinical Imaging": 23, "Graph and Network": 3},
    **{"Illustrative Diagrams": 12, "Immuno Assays": 7, "Laboratory Specimens and Cultures": 3},
    **{"Maps": 1, "Microscopy": 10, "Natural Images": 8, "PCR": 2, "Plots and Charts": 34},
    **{"Hand Drawn and Screen Based Visuals": 3, "Scientific Formulae and Equations": 1},
    **{"Tables": 2, "Tools and Materials": 5},
}


def written(folder: Path, text: str) -> str:
    path = folder / "taxonomy.yaml"
    path.write_text(text)
    return str(path)


def test_ours_has_the_global_concepts_of_the_paper_and_those_of_its_figure() -> None:
    concepts = load_taxonomy().concepts
    assert {" ".join(name.split()) for name in GLOBALS.split(",")} == set(concepts) - {
        *("Ambiguous", "Laboratory Specimens and Cultures", "Natural Images")
    }
    assert {name: len(below) for name, below in concepts.items()} == LOCALS


def test_ours_has_the_four_answers_of_the_papers_form() -> None:
    panels = load_taxonomy().panels
    assert [panel.panel_type for panel in panels] == ["single", "multiple", "multiple", "multiple"]
    assert panels[2] == PanelType(
        "multiple",
        "biomedical imaging and plots",
        "Multiple panels with biomedical imaging and plots",
    )


@pytest.mark.parametrize("name", ["X-ray radiography", "xray radiography", " x‐RAY Radio graphy\t"])
def test_case_spaces_and_dashes_make_no_other_name(name: str) -> None:
    assert normalize_name(name) == "xrayradiography"
    assert load_taxonomy().local_concept(name) == "x-ray radiography"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Graphs and Networks", "Graph and Network"),
        ("Screen Based Visuals", "Hand Drawn and Screen Based Visuals"),
        ("clinical imaging data", "Clinical Imaging"),
        ("Polymerase-Chain Reaction", "PCR"),
    ],
)
def test_other_names_of_the_paper_mean_the_same_concept(name: str, meant: str) -> None:
    assert load_taxonomy().global_concept(name) == meant


def test_a_concept_may_stand_below_two() -> None:
    both = ("Illustrative Diagrams", "Hand Drawn and Screen Based Visuals")
    assert load_taxonomy().globals_of("Drawing") == both
    assert load_taxonomy().globals_of("electrocardiogram") == ("Clinical Imaging",)


@pytest.mark.parametrize(
    ("name", "nearest"), [("x-ray", "x-ray radiography"), ("histo gramm", "histogram")]
)
def test_a_name_that_is_not_there_is_told_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"local.*'{name}'.*{nearest}"):
        load_taxonomy().local_concept(name)


def test_a_local_name_is_no_global_one() -> None:
    with pytest.raises(ConfigError, match=r"global.*'map'.*Maps"):
        load_taxonomy().global_concept("map")


def test_a_taxonomy_of_ones_own_asks_for_panels_as_the_paper_does(tmp_path: Path) -> None:
    own = load_taxonomy(written(tmp_path, "concepts: {Fig. 2 kinds: [a, 'no']}\naliases: {b: a}"))
    assert own.concepts == {"Fig. 2 kinds": ("a", "no")}
    assert own.local_concept("B") == "a"
    assert own.panels == load_taxonomy().panels
    asked = "concepts: {A: [a]}\npanels: [{panel_type: one, question: one alone}]"
    own = load_taxonomy(written(tmp_path, asked))
    assert own.panels == (PanelType("one", None, "one alone"),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("concepts: {A: [x-ray, X ray]}", "concepts.A: 'X ray'"),
        ("concepts: {A: [x-ray], B: [X ray]}", "concepts.B: 'X ray'"),
        ("concepts: {A b: [a], ab: [b]}", "concepts.ab: 'A b'"),
        ("concepts: {A: [a], A: [b]}", "'A'"),
        ("concepts: {A: []}", "concepts.A: empty"),
        ("concepts: {}", "concepts: empty"),
        ("concepts: {A: [' - ']}", "concepts.A: "),
        ("concepts: {A: [a;b]}", "semicolon"),
        ("concepts: {A: [' a']}", "' a'"),
        ("concepts: {A: [no]}", "got False"),
        ("concepts: {A: a}", "concepts.A "),
        ("concepts: [a]", "mapping"),
        ("concept: {A: [a]}", "expected aliases, concepts, panels"),
        ("- a", "is not a taxonomy"),
        ("", "is not a taxonomy"),
        ("a: [", "is not YAML"),
        ("concepts: {A: [a]}\naliases: {b: c}", "aliases.b: "),
        ("concepts: {A: [a]}\naliases: {a: a}", "aliases.a: "),
        ("concepts: {A: [a], B: [b]}\naliases: {B: A}", "aliases.B: there is a concept 'B'"),
        ("concepts: {A: [a]}\npanels: []", "panels: empty"),
        ("concepts: {A: [a]}\npanels: [{question: q}]", "panels.0 "),
        (
            "concepts: {A: [a]}\npanels: [{panel_type: s, question: q}, {panel_type: S, question: q}]",
            "panels.1: 'S'",
        ),
        (
            "concepts: {A: [a]}\npanels: [{panel_type: s, question: q, of: 3}]",
            "\n  of",
        ),
    ],
)
def test_a_file_that_is_no_taxonomy_is_told_where(tmp_path: Path, text: str, reason: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as told:
        load_taxonomy(path)
    assert reason in str(told.value)
    assert path in str(told.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_taxonomy(str(tmp_path / "nowhere.yaml"))


def test_a_global_concept_is_renamed_although_a_local_one_has_its_name(tmp_path: Path) -> None:
    own = load_taxonomy(
        written(tmp_path, "concepts: {Light: [microscopy, scan]}\naliases: {Microscopy: Light}")
    )
    assert own.global_concept("Microscopy") == "Light"
    assert own.local_concept("Microscopy") == "microscopy"
