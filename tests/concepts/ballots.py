"""Votes in few words: ``vote("ann", "Maps/map")``."""

from biovl.concepts.votes import ReviewVote

PLOTS = "biomedical imaging and plots"


def vote(reviewer: str, concepts: str, panel: str | None = None, **values: object) -> ReviewVote:
    """Return a vote; ``"Maps/map, Tables"`` names two global concepts and a local one.

    Args:
        reviewer: Who.
        concepts: Global ones, each followed by its local ones.
        panel: The subtype; None: single panels.
        values: Any other field.
    """
    named = [part.strip().split("/") for part in concepts.split(",") if part.strip()]
    plain: dict[str, object] = {
        "cluster_id": 0,
        "key": "k0",
        "reviewer": reviewer,
        "panel_type": "multiple" if panel else "single",
        "panel_subtype": panel,
        "global_concepts": tuple(first for first, *_ in named if first),
        "local_concepts": tuple(local for _, *rest in named for local in rest),
        "created": "2025-03-01T12:00:00Z",
    }
    return ReviewVote(**{**plain, **values})  # type: ignore[arg-type]
