"""The README of a fine-tuned model: scores before and after, and how it was selected."""

from collections.abc import Mapping
from typing import Any

from biovl.core.artifacts import Manifest
from biovl.core.markdown import table
from biovl.finetune.config import FinetuneConfig
from biovl.pretrain.card import front_matter

_NAME = "Fine-tuned model"

_VERDICTS = {
    "better": "It is better than the model it began with",
    "not better": "**It is not shown to be better than the model it began with**",
    "worse": "**It is worse than the model it began with**",
}


def rows_of(report: Mapping[str, Any], before: str, after: str) -> list[dict[str, Any]]:
    """Return every score of both models, with the difference and its interval if there is one.

    Scores of subsets are left out.

    Args:
        report: Contents of a report's ``scores.json``.
        before: Name of the given model in the report.
        after: Name of the published model.
    """
    values = {
        (score["task"], score["name"], score["model"]): score["value"]
        for score in report["scores"]
        if "/" not in score["name"]
    }
    differing = {
        (each["task"], each["score"]): each
        for each in report["differences"]
        if (each["ahead_of"], each["model"]) == (before, after)
    }
    rows = []
    for task, name, model in values:
        if model != before or (task, name, after) not in values:
            continue
        difference = differing.get((task, name), {})
        rows.append(
            {
                "task": task,
                "score": name,
                "before": values[task, name, before],
                "after": values[task, name, after],
                "low": difference.get("low"),
                "high": difference.get("high"),
            }
        )
    return rows


def model_card(manifest: Manifest, config: FinetuneConfig, stats: Mapping[str, Any]) -> str:
    """Return the README of a fine-tuned model.

    Args:
        manifest: Manifest of the model.
        config: Configuration of the run.
        stats: ``stats.json`` of the corpus, for the licence.
    """
    counts, notes = manifest.counts, manifest.notes
    pairs, test = counts["pairs"], notes["test"]
    parts = [
        front_matter(stats, _NAME, base=config.model),
        f"# {_NAME}",
        f"`{config.model}`, fine-tuned on {pairs['train']:,} pairs of `{config.corpus}`. "
        f"{_VERDICTS[counts['verdict']]}: on {pairs['test']:,} test pairs the mean reciprocal rank "
        f"of both directions is {test['before']:.3f} before and {test['after']:.3f} after, a "
        f"difference of {test['difference']:+.3f} ({test['low']:+.3f} to {test['high']:+.3f}, "
        f"p = {test['p']:.3f}).",
        "## Before and after",
        table(
            ["task", "score", "before", "after", "difference (95 % interval)"],
            [
                [
                    row["task"],
                    row["score"],
                    f"{row['before']:.3f}",
                    f"{row['after']:.3f}",
                    _difference(row),
                ]
                for row in notes["scores"]
            ],
        ),
        f"`test` is retrieval on the {pairs['test']:,} test pairs of the corpus, which were used "
        "for nothing else. "
        + (
            f"Retained tasks: {', '.join(config.retained)}; they were used to select the model, "
            "too."
            if config.retained
            else "No retained task was given, so what else the model could do was not measured."
        ),
        "## Selection",
        f"Published: alpha {counts['alpha']:g} between the given model (0) and the tuned one (1), "
        f"epoch {counts['published_epoch']} of {counts['epochs']}. Reason: {notes['selection']}. "
        "Scores of all alphas: `selection/`. Every weight is `(1 - alpha) given + alpha tuned` "
        "(WiSE-FT, Wortsman et al. 2021, arXiv:2109.01903).",
        "The terms of the given model, and of the data that both were trained on, hold for this "
        "one. Data, licences and curves of the training: `tuned/README.md`.",
        '```python\nopen_clip.create_model_and_transforms("local-dir:FOLDER")\n```',
    ]
    return "\n\n".join(parts) + "\n"


def _difference(row: Mapping[str, Any]) -> str:
    text = f"{row['after'] - row['before']:+.3f}"
    if row["low"] is None:
        return text
    return f"{text} ({row['low']:+.3f} to {row['high']:+.3f})"
