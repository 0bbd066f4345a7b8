"""Section with the size and recall of the index."""

from markupsafe import Markup

from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Story
from biovl.core.markdown import size

TITLE = "The index"


def body(story: Story) -> Markup | None:
    """Return a section with the recall of the index, by vectors and modality of the query."""
    index = story.of("index")
    if index is None:
        return None
    notes = index.manifest.notes
    recall = notes["recall"]
    rows = [
        [
            f"Among {over}",
            *(f"{of[kind]:.1%}" if kind in of else "–" for kind in ("text", "image")),
            notes["factories"].get(over, "–"),
        ]
        for over, of in sorted(recall.items(), reverse=True)
    ]
    weighs = sum(file.get("size_bytes", 0) for file in index.manifest.files.values())
    lead = (
        f"{notes['rows']:,} figures as vectors of {notes['dim']:,} numbers, {size(weighs)} on "
        "disk. Of the ten nearest figures, the table says how many a search finds that comparing "
        "with every vector would find."
    )
    heads = ["Recall@10", "asked with text", "with an image", "kind of index"]
    return parts.lead(lead, parts.table(heads, rows), "narrow")
