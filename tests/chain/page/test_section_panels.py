"""What a page says of figures that were cut into panels."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from biovl.chain.page.flow import flows
from biovl.chain.page.page import render
from biovl.chain.page.reading import Notes, read_story
from biovl.core.artifacts import Draft, Input, Manifest, fingerprint
from tests.chain.page.published_chain import a_picture

PART = "figures/part-000000-000.parquet"
COUNTS = {
    "parents": {"seen": 5, "split": 2},
    "panels": {"seen": 4},
    "whole": {"caption names no panels": 3},
}


def panel(parent: int, label: str, box: tuple[int, int, int, int]) -> dict[str, object]:
    return {
        "figure_id": f"f{parent}_p{label}",
        "parent_figure_id": f"f{parent}",
        "article_id": f"PMC{parent}",
        "figure_label": f"Figure {parent}",
        "panel_label": label,
        "own_caption": f"A <b>cell</b> of {label} in {parent}",
        "caption": "whole",
        "box_px": dict(zip(("x0", "y0", "x1", "y1"), box, strict=True)),
    }


def publish(folder: Path, kind: str, rows: list[dict], **about: object) -> str:
    draft = Draft(str(folder))
    with draft.folder.writer(PART) as stream:
        pq.write_table(pa.Table.from_pylist(rows), stream)
    files = {PART: {"rows": len(rows), "size_bytes": (folder / PART).stat().st_size}}
    draft.publish(Manifest(kind=kind, config={}, files=files, **about))  # type: ignore[arg-type]
    return str(folder)


def test_figures_are_shown_with_their_panels_and_the_caption_of_each(tmp_path: Path) -> None:
    # Figure 3 is figure 1 once more.
    images = [{"figure_id": f"f{n}", "image": a_picture(min(n, 4 - n))} for n in (1, 2, 3)]
    figures = publish(tmp_path / "figures", "figures", images, counts={})
    rows = [
        panel(number, label, box)
        for number in (1, 2, 3)
        for label, box in (("A", (0, 0, 30, 40)), ("B", (30, 0, 60, 40)))
    ]
    inputs = [Input(name="figures", uri=figures, fingerprint=fingerprint(figures))]
    uri = publish(tmp_path / "panels", "panels", rows, counts=COUNTS, inputs=inputs)
    page = render(read_story(str(tmp_path), {"split": uri}, Notes()))
    assert "2 figures were cut into 4 panels" in page
    assert page.count('class="cut"') == page.count('alt="Panels of') == 2
    assert "A &lt;b&gt;cell&lt;/b&gt; of B in 2" in page
    (tmp_path / "figures" / PART).unlink()
    assert 'class="cut"' not in render(read_story(str(tmp_path), {"split": uri}, Notes()))


def test_figures_that_stay_whole_are_kept() -> None:
    (flow,) = flows(Manifest(kind="panels", config={}, counts=COUNTS))
    assert flow.line == (
        "5 figures, 5 kept (cut into 4 panels 2, whole: caption names no panels 3)"
    )
