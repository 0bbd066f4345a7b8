"""The report: the table, plots."""

import io

from PIL import Image

from biovl.benchmark import report
from biovl.benchmark.report import TaskResult


def score(name: str, value: float, count: int = 10, **more: float) -> dict:
    ends = {"low": value - 0.05, "high": value + 0.05, **more}
    return {"name": name, "value": value, "count": count, "note": "", **ends}


JUDGED = [
    TaskResult(
        model="ours",
        task="retrieval",
        scores=[
            score("image_to_text_recall_at_1", 0.25),
            score("image_to_text_median_rank", 12.5, low=10, high=15),
            score("image_to_text_recall_at_1/tokens 1-16", 0.5, 4),
            score("text_to_image_recall_at_1/tokens 1-16", 0.6, 4),
            score("text_to_image_recall_at_1/tokens 17-32", 0.4, 6),
        ],
        notes={"left_out": {"no text": 2}, "chance": 0.1, "protocol": ["another sample"]},
        unreadable={"image is truncated": 3},
    ),
    TaskResult(model="clip", task="retrieval", scores=[score("image_to_text_recall_at_1", 0.125)]),
    TaskResult(
        model="dino", task="retrieval", skipped="dino has no text tower, which retrieval needs"
    ),
    TaskResult(model="", task="rsna", skipped="not at data/rsna; sign it: Shih et al."),
]


def test_the_table_holds_scores_intervals_and_what_is_not_in_them() -> None:
    text = report.table(JUDGED, [], [])
    assert "25.00 (20.00–30.00) | 12.50 (7.50–17.50)" in text
    assert "12.5 (10–15)" in text
    assert "* retrieval, ours: 3 image is truncated, 2 no text" in text
    assert "* retrieval, dino: dino has no text tower, which retrieval needs" in text
    assert "* retrieval: another sample" in text
    assert "* rsna: not at data/rsna; sign it: Shih et al." in text
    assert text.index("## Broken down") < text.index("tokens 1-16")


def test_plots_are_pictures_and_the_same_bytes_every_time() -> None:
    assert report.plot(JUDGED) == report.plot(JUDGED)
    drawn = report.breakdown_plot(JUDGED[0])
    assert drawn is not None
    assert Image.open(io.BytesIO(drawn)).width > 500
    assert report.breakdown_plot(JUDGED[1]) is None
