"""Section with the warnings of all steps, about results that are doubtful though valid."""

from markupsafe import Markup

from biovl.chain.page.flow import warnings_by_step
from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Story

TITLE = "Warnings"


def body(story: Story) -> Markup | None:
    """Return a section with the warnings of each step; None if there are none."""
    found = warnings_by_step((chapter.step, chapter.manifest) for chapter in story.chapters)
    if not found:
        return None
    return parts.lead(
        "Consider this before you rely on the results, although the steps are published.",
        parts.warnings(found),
    )
