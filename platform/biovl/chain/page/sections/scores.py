"""Section with benchmark scores and their confidence intervals."""

import json
from typing import Any

from markupsafe import Markup

from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Story
from biovl.core.folders import Folder

TITLE = "How good it is"

_MOST = 24


def body(story: Story) -> Markup | None:
    """Return a section with the scores of every task and their intervals."""
    report = story.of("report")
    if report is None or not Folder(report.uri).exists("scores.json"):
        return None
    scores = json.loads(Folder(report.uri).read("scores.json"))
    # Scores of subsets are in the report only.
    whole = [score for score in scores["scores"] if "/" not in score["name"]]
    if not whole:
        return None
    rows = [
        [
            f"{score['task']}: {score['name'].replace('_', ' ')}",
            _shown(score, score["value"]),
            f"{_shown(score, score['low'])} to {_shown(score, score['high'])}",
            f"{score['count']:,}",
        ]
        for score in whole[:_MOST]
    ]
    lead = (
        "On what was kept from training. Were the examples drawn anew, the score would lie between "
        f"the ends in 95 of 100 draws. All of it, with every prediction: {report.uri}/table.md."
    )
    heads = ["Benchmark", "score", "95 % interval", "examples"]
    return parts.lead(lead, parts.table(heads, rows), "narrow")


def _shown(score: dict[str, Any], value: float) -> str:
    return f"{value:,.1f}" if score["name"].endswith("rank") else f"{value:.1%}"
