"""Labels that are printed are found where they are; letters that are data are left alone."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from benchmarks.compound_cases import drawn, read_shared
from benchmarks.train_label_reader import NOTHING, examples, train
from biovl.images.boxes import Box, iou
from biovl.images.labels.network import WEIGHTS, builtin_network, load, save
from biovl.images.labels.reading import MAX_PIXELS, read_labels
from biovl.sample.compound.contents import font, typeface

BOLD, PLAIN = typeface("DejaVuSans-Bold"), typeface("DejaVuSans")


def figure(labels, *, size=(600, 450), ink="black", paper="white", face=BOLD, px=24):
    """A page with words at places, ``{(x, y): "A"}``, and a frame for each panel."""
    page = Image.new("RGB", size, paper)
    draw = ImageDraw.Draw(page)
    for (x, y), words in labels.items():
        draw.rectangle((x + 40, y + 40, x + 230, y + 170), outline=ink)
        draw.text((x, y), words, fill=ink, font=font(face, px), anchor="lt")
    return np.array(page)


FOUR = ((20, 20), (320, 20), (20, 240), (320, 240))


def texts(labels):
    return [label.text for label in labels]


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (("A", "B", "C", "D"), ("A", "B", "C", "D")),
        (("a", "b", "c", "d"), ("a", "b", "c", "d")),
        (("(a)", "(b)", "(c)", "(d)"), ("a", "b", "c", "d")),
        (("A)", "B)", "C)", "D)"), ("A", "B", "C", "D")),
        (("A.", "B.", "C.", "D."), ("A", "B", "C", "D")),
        (("i", "ii", "iii", "iv"), ("i", "ii", "iii", "iv")),
        (("A1", "A2", "B1", "B2"), ("A1", "A2", "B1", "B2")),
        (("1", "2", "3", "4"), ("1", "2", "3", "4")),
        (("α", "β", "γ", "δ"), ("α", "β", "γ", "δ")),
        (("A", "B", "C", "D"), ("a", "b", "c", "d")),
        (("(A) Control", "(B) Treated", "(C) Sham", "(D) All"), ("A", "B", "C", "D")),
    ],
)
def test_a_label_reads_as_the_caption_names_it(printed, expected):
    page = figure(dict(zip(FOUR, printed, strict=True)))
    assert texts(read_labels(page, expected=expected)) == list(expected)


def test_a_box_lies_around_the_ink_in_pixels_of_the_image():
    page = figure({(20, 20): "A", (320, 20): "B"})
    found = read_labels(page, expected="AB")
    assert [label.box.x0 for label in found] == pytest.approx([20, 320], abs=3)
    tall = found[0].box.height
    large = np.array(Image.fromarray(page).resize((3000, 2250), Image.Resampling.NEAREST))
    assert large.shape[0] * large.shape[1] > MAX_PIXELS
    again = read_labels(large, expected="AB")
    assert texts(again) == ["A", "B"]
    assert iou(again[1].box.scaled(0.2), found[1].box) > 0.7
    assert again[0].box.height == pytest.approx(5 * tall, rel=0.15)


def test_white_letters_on_black_are_read():
    page = figure(dict(zip(FOUR, "ABCD", strict=True)), ink="white", paper="black")
    assert texts(read_labels(page, expected="ABCD")) == list("ABCD")


def test_without_a_caption_letters_from_a_on_are_labels():
    assert texts(read_labels(figure(dict(zip(FOUR, "abcd", strict=True))))) == list("abcd")
    # Two letters of a scheme follow no order that begins anywhere.
    assert read_labels(figure({FOUR[0]: "K", FOUR[3]: "T"})) == []


def test_letters_on_an_axis_give_way_to_labels_and_are_none_themselves():
    page = Image.fromarray(figure({FOUR[0]: "A", FOUR[1]: "B"}))
    draw = ImageDraw.Draw(page)
    for i, name in enumerate("ABCD"):
        draw.text((75 + 40 * i, 200), name, fill="black", font=font(PLAIN, 13))
    found = read_labels(np.array(page), expected="AB")
    assert [label.box.y0 for label in found] == pytest.approx([20, 20], abs=2)


def test_letters_of_words_are_no_labels():
    page = figure(dict(zip(FOUR, ("Bad", "CAB", "Abacus", "Dead end"), strict=True)), face=PLAIN)
    assert read_labels(page, expected="ABCD") == []
    assert read_labels(page) == []


def test_each_expected_label_is_found_once_and_no_other():
    page = figure(dict(zip(FOUR, "ABBC", strict=True)))
    assert texts(read_labels(page, expected="AB")) == ["A", "B"]


@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (30, 30), (3, 2000), (2000, 3), (20_000, 400)])
@pytest.mark.parametrize("expected", [("A", "B"), ()])
def test_images_of_any_shape_without_letters_have_no_labels(shape, expected):
    assert read_labels(np.full((*shape, 3), 255, np.uint8), expected=expected) == []


def test_noise_takes_no_longer_than_a_figure_does_and_reads_as_nothing():
    noise = np.random.default_rng(0).integers(0, 256, (900, 1100, 3), dtype=np.uint8)
    assert len(read_labels(noise, expected="ABCDEFGH")) <= 2


@pytest.mark.parametrize("expected", [("",), ("Fig",), ("左",), ("A" * 50,), ("A", "A")])
def test_labels_that_cannot_be_are_not_found(expected):
    found = read_labels(figure({FOUR[0]: "A", FOUR[1]: "B"}), expected=expected)
    assert set(texts(found)) <= {"A"}


def test_reading_is_the_same_each_time():
    case = next(drawn("plain", 1))
    assert read_labels(case.pixels) == read_labels(case.pixels)


def test_drawn_figures_are_read_as_well_as_before():
    cases = list(drawn("plain", 4))
    recall, precision = shares(cases, is_told=True)
    assert recall >= 0.85
    assert precision >= 0.9
    assert shares(cases, is_told=False)[1] >= 0.85


def test_the_weights_are_small_and_those_the_script_trains():
    assert WEIGHTS.stat().st_size < 400_000
    assert save(load(WEIGHTS.read_bytes())) == WEIGHTS.read_bytes()
    brief = train(pages=20, hidden=48, epochs=30)
    unseen = list(examples(np.random.default_rng(99), 2))
    # Guessing would be right once in seventy.
    for network, least in ((builtin_network(), 0.8), (brief, 0.5)):
        read = np.concatenate([network.read(ink, wide).argmax(1) for ink, wide, _ in unseen])
        true = np.concatenate([classes for _, _, classes in unseen])
        letters = true != NOTHING
        assert (read == true)[letters].mean() > least
        assert (read == true)[~letters].mean() > 0.9


@pytest.mark.shared
def test_labels_of_real_figures_are_found(shared_data: Path):
    recall, precision = shares(read_shared(shared_data), is_told=True)
    assert recall >= 0.9
    assert precision >= 0.95


def shares(cases, *, is_told):
    """Return recall and precision of the printed labels of figures."""
    right = found = true = 0
    for case in cases:
        labels = read_labels(case.pixels, expected=case.labels if is_told else ())
        boxes = {panel.label: panel.label_box for panel in case.panels if panel.label_box}
        right += sum(label.text in boxes and near(label.box, boxes[label.text]) for label in labels)
        found, true = found + len(labels), true + len(boxes)
    return right / true, right / found


def near(found: Box, drawn: Box) -> bool:
    x, y = found.centre
    room = drawn.height / 2 + 2
    return drawn.x0 - room <= x <= drawn.x1 + room and drawn.y0 - room <= y <= drawn.y1 + room
