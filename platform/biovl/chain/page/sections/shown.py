"""Section with a screenshot of the search page."""

import io

from markupsafe import Markup
from PIL import Image

from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Story
from biovl.core.artifacts import Folder

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
    section: Markup = parts.lead(
        "As a browser showed it while the service was up.",
        parts.shot(image, "The search page of the service"),
    )
    return section


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
