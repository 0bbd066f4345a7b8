"""Section with clusters of images and the concepts that reviewers assigned."""

from markupsafe import Markup

from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Story
from biovl.chain.page.sections.shown import smaller
from biovl.core.folders import Folder

TITLE = "What they show"

_SHEET = "sheets.png"


def body(story: Story) -> Markup | None:
    """Return a section with some clusters, and their labels if there are votes."""
    concepts = story.of("concepts")
    if concepts is None:
        return None
    labels = next((item for item in story.chapters if item.step == "resolve"), None)
    sheet = None
    for chapter in filter(None, (labels, concepts)):
        if sheet is None and Folder(chapter.uri).exists(_SHEET):
            sheet = smaller(Folder(chapter.uri).read(_SHEET))
    if sheet is None:
        return None
    counts = concepts.manifest.counts
    lead = (
        f"{counts['clustered']:,} images in {counts['clusters']:,} clusters of those that look "
        "alike to the model, some of them here, a row each. "
    )
    if labels is not None:
        votes = labels.manifest.counts["votes"]["counted"]
        lead += f"{votes:,} votes give them their names, and every image inherits them. "
        agreed = labels.manifest.notes.get("agreement", {}).get("global_concepts", {})
        if agreed.get("clusters"):
            lead += (
                f"Of {agreed['clusters']:,} clusters with several votes, on average "
                f"{agreed['mean']:.0f} % of the votes name another topic than most: such clusters "
                "are mixed. "
            )
        lead += story.notes.labels
    shot = parts.shot(sheet, "Some clusters and their labels", tall=True)
    return parts.lead(lead, shot)
