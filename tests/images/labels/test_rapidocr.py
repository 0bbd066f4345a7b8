"""The second label reader is optional: without it there is a clear word, with it the same API."""

import importlib.util

import numpy as np
import pytest
from PIL import Image, ImageDraw

from biovl.core.errors import ConfigError
from biovl.images.boxes import Box
from biovl.images.labels.rapidocr import RapidOcrReader, label_in, match_expected
from biovl.images.labels.reading import Label
from biovl.sample.compound.contents import font, typeface

INSTALLED = importlib.util.find_spec("rapidocr") is not None


@pytest.mark.parametrize(
    ("line", "label"),
    [
        *(("A", "A"), ("(b)", "b"), ("C)", "C"), ("iv.", "iv"), ("A1", "A1"), ("12", "12")),
        *(("(A) Control", "A"), ("a. Before", "a"), ("β", "β"), ("A'", "A'")),
        *(("Control", None), ("37 kDa", None), ("", None), ("p < 0.05", None)),
    ],
)
def test_a_line_is_or_begins_with_a_label(line, label):
    assert label_in(line) == label


def test_the_surest_reading_of_each_expected_label_is_kept():
    box = Box(0, 0, 5, 5)
    found = [Label("B", box, 0.5), Label("a", box, 0.6), Label("B", box, 0.9), Label("x", box, 1)]
    assert match_expected(found, "ABC") == [Label("A", box, 0.6), Label("B", box, 0.9)]


@pytest.mark.skipif(INSTALLED, reason="rapidocr is installed")
def test_without_the_package_the_reader_says_what_to_install():
    with pytest.raises(ConfigError, match="pip install rapidocr onnxruntime"):
        RapidOcrReader()


@pytest.mark.skipif(not INSTALLED, reason="rapidocr is not installed")
def test_printed_labels_are_read():
    page = Image.new("RGB", (500, 250), "white")
    draw = ImageDraw.Draw(page)
    face = font(typeface("DejaVuSans-Bold"), 24)
    for x, words in ((20, "(A)"), (270, "(B)")):
        draw.rectangle((x + 45, 50, x + 200, 220), outline="black")
        draw.text((x, 10), words, fill="black", font=face)
    found = RapidOcrReader()(np.array(page), expected="AB")
    assert [label.text for label in found] == ["A", "B"]
    assert [round(label.box.x0 / 250) for label in found] == [0, 1]
