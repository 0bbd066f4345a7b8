"""The bar chart of how frequent types are."""

import pytest

from biovl.annotate import chart


@pytest.mark.parametrize(
    "counts", [{}, {"X-ray": 3, "table": 3}, {f"type {n}": n for n in range(40)}]
)
def test_the_chart_is_an_image_and_the_same_every_time(counts: dict[str, int]) -> None:
    drawn = chart.frequencies(counts, title="Image types", what="images")
    assert drawn.startswith(b"\x89PNG")
    assert drawn == chart.frequencies(
        dict(reversed(counts.items())), title="Image types", what="images"
    )
