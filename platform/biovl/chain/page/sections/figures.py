"""Section with a sample of figures, their captions and licences."""

from markupsafe import Markup

from biovl.chain.page import figures
from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Story

TITLE = "Some of the figures"

_COUNT = 18


def body(story: Story) -> Markup | None:
    """Return a section with figures of different articles."""
    corpus = story.of("corpus")
    if corpus is None:
        return None
    rows = figures.sample_figures(corpus.uri, _COUNT)
    if not rows:
        return None
    cards = [figures.card(row, figures.small_image(corpus.uri, row)) for row in rows]
    lead = "Of different articles, with the caption as it was published: a click shows all of it."
    return parts.lead(lead, parts.group(cards, "grid sheet", "ul"))
