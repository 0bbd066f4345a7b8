"""What a page says of clusters, labels and benchmarks."""

import json
from pathlib import Path
from typing import Any

import pytest

from biovl.chain.page.flow import flows
from biovl.chain.page.page import render
from biovl.chain.page.reading import Notes, Story, read_story
from biovl.core.artifacts import Draft, Manifest, to_json
from tests.chain.page.published_chain import a_picture

CONCEPTS = {"rows": 240, "clustered": 238, "clusters": 36, "without_embedding": {"no image": 2}}
LABELS = {
    "rows": 240,
    "labelled": {"votes": 200},
    "unlabelled": {"votes for its cluster are tied": 40},
    "clusters": {"labelled": 30, "tied": 6, "without votes": 0},
    "votes": {"counted": 108, "refused": {}},
}
AGREED = {"agreement": {"global_concepts": {"clusters": 36, "mean": 12.04}}}
ANNOTATED = {"rows": 240, "annotated": 238, "defective": 2, "defects": {"no image": 2}}
REPORT = {"tasks": 2, "models": 1, "skipped": 1, "unreadable": 3, "first_scores": {}}


@pytest.mark.parametrize(
    ("kind", "counts", "line"),
    [
        ("columns", ANNOTATED, "240 images, 238 annotated"),
        ("concepts", CONCEPTS, "240 images, 238 clustered; in 36 clusters"),
        ("columns", LABELS, "240 images, 200 labelled; 30 of 36 clusters have labels"),
        ("report", REPORT, "3 benchmarks, 2 answered; 3 images cannot be read"),
    ],
)
def test_every_row_of_a_step_is_kept_or_left_out_for_a_reason(
    kind: str, counts: dict[str, Any], line: str
) -> None:
    (flow,) = flows(Manifest(kind=kind, config={}, counts=counts))
    assert flow.line == line
    assert flow.kept + sum(flow.dropped.values()) == flow.seen


def story(folder: Path) -> Story:
    def publish(name: str, kind: str, counts: dict[str, Any], **files: bytes) -> str:
        draft = Draft(str(folder / name))
        for file, data in files.items():
            draft.folder.write(file.replace("__", "."), data)
        draft.publish(Manifest(kind=kind, config={}, counts=counts, notes=AGREED))
        return str(folder / name)

    scores = [
        {"model": "m", "task": "retrieval", "name": name, "count": 35, **value}
        for name, value in (
            ("recall_at_1", {"value": 0.114, "low": 0.02, "high": 0.25}),
            ("median_rank", {"value": 8.5, "low": 5.0, "high": 13.0}),
            ("recall_at_1/licence", {"value": 0.5, "low": 0.1, "high": 0.9}),
        )
    ]
    uris = {
        "cluster": publish("concepts", "concepts", CONCEPTS, sheets__png=a_picture(1)),
        "resolve": publish("labels", "columns", LABELS, sheets__png=a_picture(2)),
        "benchmark": publish("report", "report", REPORT, scores__json=to_json({"scores": scores})),
    }
    return read_story(str(folder), uris, Notes(labels="70% of the images have the topic drawn."))


def test_clusters_are_shown_with_their_labels_and_scores_with_their_intervals(
    tmp_path: Path,
) -> None:
    page = render(story(tmp_path))
    assert "238 images in 36 clusters" in page
    assert "108 votes give them their names" in page
    assert "36 clusters with several votes" in page
    assert "12 % of the votes" in page
    assert "70% of the images have the topic drawn." in page
    assert "11.4%" in page
    assert "2.0% to 25.0%" in page
    assert "5.0 to 13.0" in page
    assert "licence" not in page.partition("How good it is")[2].partition("What next")[0]
    assert json.loads((tmp_path / "report" / "manifest.json").read_text())["kind"] == "report"
