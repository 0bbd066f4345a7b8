"""Section with a screenshot of the search page, and pictures that other sections show."""

import io

from markupsafe import Markup
from PIL import Image

from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Chapter, Story
from biovl.core.folders import Folder

TITLE = "Its page"

_WIDTH_PX = 1_000


def body(story: Story) -> Markup | None:
    """Return a section with the screenshot of the search page; None if there is none."""
    name = story.notes.screenshot
    if not name or not Folder(story.folder).exists(name):
        return None
    image = smaller(Folder(story.folder).read(name))
    if image is None:
        return None
    return parts.lead(
        "As a browser showed it while the service was up.",
        parts.shot(image, "The search page of the service"),
    )


def plot_panel(chapter: Chapter, name: str, title: str, words: str) -> Markup | None:
    """Return a panel with a plot that a step published; None if it did not.

    Args:
        chapter: The step.
        name: File name in the folder ``plots``.
        title: Title of the panel.
        words: Its caption.
    """
    folder, path = Folder(chapter.uri), f"plots/{name}"
    image = smaller(folder.read(path)) if folder.exists(path) else None
    if image is None:
        return None
    return parts.panel(title, parts.picture(image, title), words, wide=True)


def smaller(png: bytes) -> bytes | None:
    """Return a JPEG at most 1,000 px wide; None if the input is not a PNG."""
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            image.thumbnail((_WIDTH_PX, 4 * _WIDTH_PX), Image.Resampling.LANCZOS)
            stream = io.BytesIO()
            image.convert("RGB").save(stream, "JPEG", quality=82, optimize=True)
    except (OSError, SyntaxError, ValueError):
        return None
    return stream.getvalue()
