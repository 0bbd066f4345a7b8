"""What every annotator keeps to: a new file in ``annotators/`` is tested before a line is written."""

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from biovl.annotate import pieces
from biovl.annotate.annotators import Annotator
from biovl.annotate.batches import RowBatch
from biovl.core import plugins
from biovl.core.plugins import Plugin, make
from tests.annotate.small_models import png, save_clip, save_dinov2, scene

ROWS: list[dict[str, Any]] = [
    *({"image": png(scene(seed, 60 + 5 * seed)), "caption": f"scene {seed}"} for seed in range(5)),
    {"image": {"bytes": png(scene(9)), "path": "nine.png"}, "caption": "scene 9"},
]
for row in ROWS:
    row |= {"mentions": [], "caption_superscripts": []}
    row |= {"article.abstract": None, "article.full_text": "a scene", "figure_label": None}
    row |= {"article.abbreviations": None}
BAD = [None, b"", b"\xff\xd8\xff broken", {"bytes": None, "path": None}, "", 7]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plugin]:
    """Settings under which each annotator can work on the rows above."""
    folder = tmp_path_factory.mktemp("models")
    clip = str(save_clip(folder / "clip"))
    return {
        "dinov2": Plugin("dinov2", {"weights": str(save_dinov2(folder / "dinov2"))}),
        "clip": Plugin("clip", {"weights": clip}),
        "clip of texts": Plugin("clip", {"weights": clip, "of": "text"}),
        "image_type": Plugin("image_type", {"weights": clip}),
        # Without an endpoint, of which every figure keeps its caption.
        "longcap": Plugin("longcap", {"model": "m", "cache": str(folder), "most_failures": 1.0}),
    }


@pytest.fixture(scope="module", params=[*plugins.names("annotate.annotators"), "clip of texts"])
def annotator(request: pytest.FixtureRequest, example: dict[str, Plugin]) -> Annotator:
    # One that needs no settings needs no example.
    made: Annotator = make("annotate.annotators", example.get(request.param, Plugin(request.param)))
    return made


def computed(annotator: Annotator, rows: list[dict[str, Any]]) -> pa.Table:
    made = [annotator.prepare(row) for row in rows]
    usable = [value for value in made if not isinstance(value, str)]
    defects = [value if isinstance(value, str) else None for value in made]
    texts = any(isinstance(value, bytes) for value in usable)
    prepared = np.array(usable, object) if texts else np.stack(usable) if usable else np.empty(0)
    model = annotator.load("cpu", "float32")
    return pieces.compute(
        annotator, model, RowBatch(part=0, first=0, prepared=prepared, defects=defects)
    )


def test_it_writes_the_columns_it_names_with_their_types(annotator: Annotator) -> None:
    assert annotator.name == annotator.writes.names[0]
    assert set(annotator.counted) <= set(annotator.writes.names)
    found = computed(annotator, ROWS)
    assert found.schema == pieces.schema_of(annotator)
    assert found[pieces.defect_column(annotator)].to_pylist() == [None] * len(ROWS)
    assert all(found[name].null_count == 0 for name in annotator.writes.names)


def test_it_reads_no_other_columns_than_it_names(annotator: Annotator) -> None:
    asked = set()

    class Row(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            asked.add(name)
            return super().__getitem__(name)

    annotator.prepare(Row(ROWS[0]))
    assert asked <= set(annotator.reads)


def test_how_rows_are_put_together_does_not_matter(annotator: Annotator) -> None:
    whole = computed(annotator, ROWS)
    halves = pa.concat_tables([computed(annotator, ROWS[:2]), computed(annotator, ROWS[2:])])
    for name in annotator.writes.names:
        for one, other in zip(whole[name].to_pylist(), halves[name].to_pylist(), strict=True):
            is_number = isinstance(one, float) or (one and isinstance(one[0], float))
            assert one == (pytest.approx(other, abs=5e-3) if is_number else other)


def test_it_travels_to_workers_and_is_small(annotator: Annotator) -> None:
    packed = pickle.dumps(annotator)
    # The vocabulary of a tokenizer is the largest it may hold.
    assert len(packed) < 10_000_000
    again = pickle.loads(packed)
    first, second = annotator.prepare(ROWS[0]), again.prepare(ROWS[0])
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("cell", BAD, ids=repr)
def test_what_cannot_be_used_is_a_defect_and_never_an_exception(
    annotator: Annotator, cell: Any
) -> None:
    row: Mapping[str, Any] = dict.fromkeys(annotator.reads, cell)
    reason = annotator.prepare(row)
    assert isinstance(reason, str)
    assert reason
