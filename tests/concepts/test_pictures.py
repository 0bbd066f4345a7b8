"""Contact sheets and the scree plot."""

import io

import numpy as np
from PIL import Image

from biovl.concepts import pca
from biovl.concepts.contact_sheet import ACROSS, SheetRow, contact_sheet
from biovl.concepts.scree_plot import scree
from tests.concepts.folders import image_of


def opened(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_a_sheet_has_a_row_for_each_cluster_and_ten_images_in_each() -> None:
    row = SheetRow(title="cluster 0", images=[image_of(200)] * 12)
    pixels = opened(contact_sheet([row, row]))
    is_image = (np.abs(pixels.astype(int) - (200, 0, 90)) < 8).all(axis=2)
    columns = np.flatnonzero(np.diff(is_image.any(axis=0).astype(int)) == 1)
    rows = np.flatnonzero(np.diff(is_image.any(axis=1).astype(int)) == 1)
    assert (len(columns), len(rows)) == (ACROSS, 2)
    assert (pixels[:5] == 255).all()


def test_a_sheet_takes_long_words_no_images_and_what_does_not_decode() -> None:
    long = SheetRow(title="cluster 1" * 30, lines=["word " * 40] * 9, images=[None, image_of(1)])
    assert opened(contact_sheet([long], heading="Clusters")).shape[1] > 1_000
    assert (opened(contact_sheet([])) == 255).all()


def test_a_sheet_is_the_same_bytes_every_time() -> None:
    rows = [SheetRow(title="cluster 0", lines=["5 images"], images=[image_of(3)])]
    assert contact_sheet(rows) == contact_sheet(rows)


def test_the_scree_plot_is_drawn_also_without_variance() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 8))
    assert opened(scree(pca.fit(pca.moments(vectors), 3))).std() > 1
    assert len(scree(pca.fit(pca.moments(np.ones((5, 3))), 2))) > 1_000
