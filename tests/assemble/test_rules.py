import numpy as np
import pyarrow as pa
import pytest

from biovl.assemble import rules
from biovl.assemble.rules import Rule, make_rules, rejected_by, rejections
from biovl.core import config
from biovl.core.errors import ConfigError
from biovl.core.overrides import parse_call
from biovl.core.plugins import Plugin

CASES = [
    (rules.usable_image(), {"defect": None}, None),
    (rules.usable_image(), {"defect": "image too large"}, "figure has a defect"),
    (rules.has_caption(), {"caption_chars": 1}, None),
    (rules.has_caption(), {"caption_chars": 0}, "no caption"),
    (rules.caption_chars(10, 20), {"caption_chars": 10}, None),
    (rules.caption_chars(10, 20), {"caption_chars": 20}, None),
    (rules.caption_chars(10, 20), {"caption_chars": 21}, "caption not of 10 to 20 characters"),
    (rules.caption_chars(10), {"caption_chars": 9}, "caption not of at least 10 characters"),
    (rules.min_side(112), {"width_px": 112, "height_px": 112}, None),
    (rules.min_side(112), {"width_px": 111, "height_px": 500}, "shorter side under 112 px"),
    (rules.min_side(112), {"width_px": None, "height_px": 500}, "shorter side under 112 px"),
    (rules.max_aspect(5), {"width_px": 500, "height_px": 100}, None),
    (
        rules.max_aspect(5),
        {"width_px": 100, "height_px": 501},
        "longer side over 5 times the shorter",
    ),
    (rules.license_groups(("commercial",)), {"license_group": "commercial"}, None),
    (
        rules.license_groups(("commercial",)),
        {"license_group": "other"},
        "licence group not commercial",
    ),
    (rules.redistributable(), {"redistributable": True}, None),
    (
        rules.redistributable(),
        {"redistributable": None},
        "licence does not allow redistribution",
    ),
    (rules.derivatives_allowed(), {"derivatives_allowed": True}, None),
    (
        rules.derivatives_allowed(),
        {"derivatives_allowed": False},
        "licence does not allow derivatives",
    ),
    (rules.not_third_party(), {"third_party": False}, None),
    (rules.not_third_party(), {"third_party": None}, None),
    (rules.not_third_party(), {"third_party": True}, "credits a third party"),
    (rules.languages(("en", "pt")), {"language": "pt"}, None),
    (rules.languages(("en", "pt")), {"language": "EN-us"}, None),
    (rules.languages(("en_GB", "pt")), {"language": "en_US"}, None),
    (rules.languages(("en", "pt")), {"language": "eng"}, None),
    (rules.languages(("en", "pt")), {"language": None}, None),
    (rules.languages(("pt",)), {"language": None}, "language not pt"),
    (rules.languages(("en", "pt")), {"language": "es"}, "language not en or pt"),
    (rules.years(2010, 2020), {"published": "2010"}, None),
    (rules.years(2010, 2020), {"published": "2020-12"}, None),
    (rules.years(2010, 2020), {"published": "2021-01-01"}, "not published in 2010 to 2020"),
    (rules.years(2010, 2020), {"published": None}, "not published in 2010 to 2020"),
    (rules.years(2010, 2020), {"published": "Spring"}, "not published in 2010 to 2020"),
    (rules.article_types(("case-report",)), {"article_type": "case-report"}, None),
    (rules.article_types(("case-report",)), {"article_type": None}, "article type not case-report"),
    (
        rules.not_article_types(("retraction",)),
        {"article_type": "retraction"},
        "article type retraction",
    ),
    (rules.not_article_types(("retraction",)), {"article_type": None}, None),
    (rules.figure_kinds(), {"kind": "figure"}, None),
    (rules.figure_kinds(("figure",)), {"kind": "author-response"}, "figure kind not figure"),
    (rules.not_retracted(), {"retracted": True}, "article retracted"),
    (rules.not_retracted(), {"retracted": False}, None),
    (rules.not_retracted(), {"retracted": None}, None),
    (rules.newest_version(), {"superseded": True}, "newer version exists"),
    (rules.newest_version(), {"superseded": False}, None),
    (rules.value_between("sharpness", minimum=0.5), {"sharpness": 0.5}, None),
    (
        rules.value_between("sharpness", minimum=0.5),
        {"sharpness": 0.4},
        "sharpness not at least 0.5",
    ),
    (rules.value_between("sharpness", maximum=2), {"sharpness": None}, "sharpness not at most 2"),
    (rules.value_one_of("image_type", ("ct", "mri")), {"image_type": "ct"}, None),
    (
        rules.value_one_of("image_type", ("ct", "mri")),
        {"image_type": "plot"},
        "image_type not ct or mri",
    ),
    (rules.any_of("concepts", ("ct", "mri")), {"concepts": ["plot", "mri"]}, None),
    (rules.any_of("concepts", ("ct", "mri")), {"concepts": ["m"]}, "concepts without ct or mri"),
    (rules.any_of("concepts", ("ct",)), {"concepts": None}, "concepts without ct"),
    (rules.none_of("concepts", ("plot",)), {"concepts": ["plot", "mri"]}, "concepts with plot"),
    (rules.none_of("concepts", ("plot",)), {"concepts": []}, None),
    (rules.none_of("concepts", ("plot",)), {"concepts": None}, None),
]
STRINGS = ["defect", "license_group", "language", "published", "article_type", "kind", "image_type"]
COLUMNS = pa.schema(
    [
        *((name, pa.int64()) for name in ("caption_chars", "width_px", "height_px")),
        *((name, pa.bool_()) for name in ("retracted", "superseded")),
        ("sharpness", pa.float64()),
        *((name, pa.bool_()) for name in ("redistributable", "derivatives_allowed", "third_party")),
        *((name, pa.string()) for name in STRINGS),
        ("concepts", pa.list_(pa.string())),
    ]
)


def table(*rows: dict) -> pa.Table:
    return pa.Table.from_pylist([dict(row) for row in rows], COLUMNS)


@pytest.mark.parametrize(("rule", "row", "reason"), CASES)
def test_a_row_is_rejected_for_a_reason_or_kept(rule: Rule, row: dict, reason: str | None) -> None:
    assert rejections(table(row), [rule]).to_pylist() == [reason]


@pytest.mark.parametrize("kind", ["author-response", "table-image", "video"])
def test_figures_that_were_not_published_as_figures_go_by_default(kind: str) -> None:
    assert rejections(table({"kind": kind}), [rules.figure_kinds()])[0].is_valid


def test_the_first_rule_that_rejects_gives_the_reason() -> None:
    batch = {"width_px": np.array([50, 50, 900]), "height_px": np.array([50, 900, 900])}
    asked = [rules.min_side(40), rules.max_aspect(2), rules.min_side(112)]
    assert rejected_by(batch, asked).tolist() == [
        "shorter side under 112 px",
        "longer side over 2 times the shorter",
        None,
    ]


def test_a_batch_may_be_split_anywhere() -> None:
    rows = [{**dict.fromkeys(COLUMNS.names), **row} for _, row, _ in CASES]
    # A column that is null throughout one batch and not in another has another NumPy type there.
    for row in rows:
        row["superseded"] = bool(row["superseded"])
    asked = [rule for rule, _, _ in CASES]
    for rule in asked:
        whole = rejections(table(*rows), [rule]).to_pylist()
        assert whole == [rejections(table(row), [rule])[0].as_py() for row in rows]


def test_no_rules_reject_nothing() -> None:
    assert rejections(table({}, {}), []).to_pylist() == [None, None]


def test_no_rows_give_no_reasons() -> None:
    assert rejections(COLUMNS.empty_table(), [rule for rule, _, _ in CASES]).to_pylist() == []


def test_rules_are_made_from_plain_settings() -> None:
    plain = [{"name": "min_side", "px": 112}, {"name": "license_groups", "allowed": ["commercial"]}]
    made = make_rules([config.build(Plugin, rule) for rule in plain])
    row = {"width_px": 500, "height_px": 111, "license_group": "commercial"}
    assert rejections(table(row), made).to_pylist() == ["shorter side under 112 px"]


@pytest.mark.parametrize(
    ("described", "told"),
    [
        (Plugin("min_sides", {"px": 112}), "'min_sides'.*min_side"),
        (Plugin("rejected_by"), "'rejected_by'"),
        (Plugin("min_side"), "px: "),
        (Plugin("min_side", {"px": 0}), r"px: .*\b0\b"),
        (Plugin("min_side", {"px": "wide"}), r"px: .*\(got 'wide'\)"),
        (Plugin("min_side", {"px": 112, "side": 1}), "side: "),
        (Plugin("license_groups", {"allowed": ["free"]}), "allowed.*commercial"),
        (Plugin("value_between", {"column": "sharpness"}), "minimum .*maximum .*sharpness"),
    ],
)
def test_a_mistake_in_the_settings_of_a_rule_is_told(described: Plugin, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_rules([described])


def test_a_rule_for_several_values_does_not_read_the_letters_of_one() -> None:
    with pytest.raises(ConfigError, match="column image_type"):
        rejections(table({"image_type": "ct"}), [rules.any_of("image_type", ("c",))])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("width_px", [7]),
        ("width_px", [7, None]),
        ("sharpness", [0.5]),
        ("retracted", [True, None]),
        ("concepts", [["ct"], ["ct", "mri"]]),
    ],
)
def test_rules_about_texts_name_a_column_of_another_type(name: str, values: list) -> None:
    rows = table(*({name: value} for value in values))
    told = rf"column {name} .*value_one_of.*texts.*any_of.*lists.*value_between.*numbers"
    for rule in (rules.value_one_of(name, ("7",)), rules.not_listed(name, ("7",), "withdrawn")):
        with pytest.raises(ConfigError, match=told):
            rejections(rows, [rule])


def test_a_list_in_front_of_other_settings_stands_in_brackets() -> None:
    given = parse_call("not_listed(article_id, [PMC1, PMC2], withdrawn)")
    settings = {name: value for name, value in given.items() if name != "name"}
    assert rules.with_names(Plugin("not_listed", settings)).settings == {
        "column": "article_id",
        "listed": ["PMC1", "PMC2"],
        "called": "withdrawn",
    }


def test_a_rule_on_a_column_that_is_not_there_is_told() -> None:
    told = "column 'sharpnes'.*sharpness"
    with pytest.raises(ConfigError, match=told):
        rejections(table({}), [rules.value_between("sharpnes", minimum=1)])
