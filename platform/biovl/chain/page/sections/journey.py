"""Section with the input and output counts of each step, and the reasons of dropped rows."""

from markupsafe import Markup

from biovl.chain.page.flow import Flow, flows
from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Chapter, Story

TITLE = "What became of everything"


def body(story: Story) -> Markup | None:
    """Return a section with the rows of every step as bars, and the reasons of dropped rows."""
    if not story.chapters:
        return None
    # Articles and figures are counted in different units.
    most: dict[bool, int] = {}
    for chapter in story.chapters:
        for flow in flows(chapter.manifest):
            most[flow.what == "articles"] = max(most.get(flow.what == "articles", 1), flow.seen)
    steps = [
        (chapter, _time(chapter), [_bar(flow, most) for flow in flows(chapter.manifest)])
        for chapter in story.chapters
    ]
    return parts.lead(
        "Nothing is lost in silence: what came in is what went out and what was left out, each "
        "with its reason.",
        parts.journey(steps),
    )


def _time(chapter: Chapter) -> str | None:
    if chapter.seconds is None:
        return None
    minutes, seconds = divmod(round(chapter.seconds), 60)
    hours, rest = divmod(minutes, 60)
    text = f"{hours} h {rest} min" if hours else f"{minutes} min {seconds} s"
    return text if minutes else f"{seconds} s"


def _bar(flow: Flow, most: dict[bool, int]) -> tuple[Flow, float, float]:
    """Return a flow with the widths of its kept and dropped rows, in percent."""
    full = most[flow.what == "articles"]
    # Keep even one dropped article among millions visible.
    least = 0.6 if flow.seen > flow.kept else 0
    return flow, 100 * flow.kept / full, max(100 * (flow.seen - flow.kept) / full, least)
