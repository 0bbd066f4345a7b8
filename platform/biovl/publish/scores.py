"""Scores of a model in the forms that the Hugging Face hub reads, and as MTEB's result files.

    .eval_results/biovl-TASK.yaml   scores on tasks of benchmarks of the hub: for its leaderboards
    README.md                       the model's card with a model-index and a table of all scores

The hub aggregates ``.eval_results/`` only for data sets with an ``eval.yaml`` that defines the task
and that are on its list of benchmarks, so a score gets there only with such a task. All other
public scores are in the card. Values are per cent, as on the hub's and MTEB's leaderboards.

Source:
    hf.co/docs/hub/eval-results; ``EvalResultEntry`` and ``EvalResult`` of huggingface_hub.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from biovl.benchmark.public_scores import PublicScore, display, in_published_unit, public_scores
from biovl.core.errors import ConfigError
from biovl.core.folders import Folder
from biovl.core.markdown import table
from biovl.publish import mteb_results
from biovl.publish.config import HubData
from biovl.publish.kinds import CARD

EVAL_RESULTS = ".eval_results"
HEADING = "## Scores on public benchmarks"

_HUB_TASKS = {
    "zero_shot": "zero-shot-image-classification",
    "closed_vqa": "visual-question-answering",
    "vqa": "visual-question-answering",
    "retrieval": "image-text-retrieval",
}
_HUB_TASK = "image-classification"
"""Task category of probes and fine-tuning."""
_METRICS = {"accuracy": "accuracy", "auroc": "roc_auc", "macro_f1": "f1"}
"""Metric ids of hf.co/metrics by our names; others keep their name."""


@dataclass(frozen=True, kw_only=True)
class ScoreFiles:
    """Files with a model's scores, and the reasons why tasks are left out."""

    files: Mapping[str, bytes]
    """Contents by path in the model's repository."""
    mteb: Mapping[str, bytes]
    """MTEB's result files by name; they go to MTEB's repository, not to the model's."""
    withheld: Mapping[str, int] = field(default_factory=dict)
    """Number of tasks whose scores are not exported, by reason."""
    not_mteb: Mapping[str, str] = field(default_factory=dict)
    """Reason why a task has no result file of MTEB, by task."""


def score_files(
    folder: str, reports: Sequence[str], datasets: Mapping[str, HubData], repo: str = ""
) -> ScoreFiles:
    """Return the files with the scores of a model.

    Args:
        folder: The model, with its card.
        reports: Folders of benchmark reports that contain scores of the model.
        datasets: Data sets of the hub by task.
        repo: Repository of the model on the hub, which is named as source; empty: no source.

    Raises:
        ArtifactError: If a report does not contain the model, or no score may be published.
        ConfigError: If a score named in ``datasets`` does not exist.
    """
    scores, withheld = public_scores(reports, folder, datasets)
    known = {**mteb_results.hub_tasks(scores), **datasets}
    files = {
        f"{EVAL_RESULTS}/biovl-{re.sub(r'[^A-Za-z0-9._-]', '-', item.task)}.yaml": _entry(
            item, known[item.task], repo
        )
        for item in scores
        if item.task in known and known[item.task].task_id
    }
    if scores:
        card = Folder(folder).read(CARD).decode()
        files[CARD] = with_scores(card, scores, known, repo).encode()
    results, reasons = mteb_results.results(scores)
    return ScoreFiles(files=files, mteb=results, withheld=withheld, not_mteb=reasons)


def _entry(item: PublicScore, data: HubData, repo: str) -> bytes:
    """Return the file in ``.eval_results/`` of one score."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    score = score_of_hub_task(item, data)
    entry = EvalResultEntry(
        dataset_id=data.id,
        task_id=data.task_id,
        dataset_revision=data.revision or None,
        value=in_published_unit(score["name"], score["value"]),
        date=item.date,
        source_url=_url(repo) if repo else None,
        source_name="Model card" if repo else None,
        notes=item.sentence(score),
    )
    return _yaml(eval_result_entries_to_yaml([entry])).encode()


def score_of_hub_task(item: PublicScore, data: HubData) -> Mapping[str, Any]:
    """Return the score of a task that the hub's task measures.

    Raises:
        ConfigError: If the report does not have it.
    """
    named = [score for score in item.scores if score["name"] == (data.score or score["name"])]
    if not named:
        names = ", ".join(score["name"] for score in item.scores)
        raise ConfigError(f"datasets.{item.task}.score: no {data.score!r} in the report; {names}")
    return named[0]


def with_scores(
    card: str, scores: Sequence[PublicScore], known: Mapping[str, HubData], repo: str = ""
) -> str:
    """Return a model card with a model-index in its metadata, and a table of the scores.

    A model-index or table of an earlier export is replaced.

    Args:
        card: The card, with or without metadata.
        scores: The scores.
        known: Data sets of the hub by task.
        repo: Repository of the model on the hub.
    """
    metadata, body = _parts(card)
    title = re.search(r"^# (.+)$", body, re.MULTILINE)
    name = str(metadata.get("model_name") or (title.group(1) if title else "model"))
    metadata["model-index"] = _model_index(name, scores, known, repo)
    body = re.sub(rf"\n*{re.escape(HEADING)}\n.*?(?=\n## |\Z)", "", body, flags=re.DOTALL)
    section = f"{HEADING}\n\n{_table(scores)}\n"
    return f"---\n{_yaml(metadata)}---\n\n{body.strip()}\n\n{section}"


def _parts(card: str) -> tuple[dict[str, Any], str]:
    match = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
    if match is None:
        return {}, card
    return dict(yaml.safe_load(match.group(1)) or {}), card[match.end() :]


def _model_index(
    name: str, scores: Sequence[PublicScore], known: Mapping[str, HubData], repo: str
) -> Any:
    from huggingface_hub import EvalResult
    from huggingface_hub.repocard_data import eval_results_to_model_index

    ids = [_id(item, known) for item in scores]
    results = [
        EvalResult(
            task_type=_HUB_TASKS.get(item.protocol, _HUB_TASK),
            task_name=item.protocol,
            dataset_type=_id(item, known),
            dataset_name=item.about,
            # The client joins results of one data set, unless their configurations differ.
            dataset_config=item.task if ids.count(_id(item, known)) > 1 else None,
            dataset_revision=(known[item.task].revision or None) if item.task in known else None,
            metric_type=_METRICS.get(score["name"], score["name"]),
            metric_name=_metric_name(score),
            metric_value=in_published_unit(score["name"], score["value"]),
            source_name=item.code if repo else None,
            source_url=_url(repo) if repo else None,
        )
        for item in scores
        for score in item.scores
    ]
    return eval_results_to_model_index(name, results)


def _id(item: PublicScore, known: Mapping[str, HubData]) -> str:
    return known[item.task].id if item.task in known else item.task


def _metric_name(score: Mapping[str, Any]) -> str:
    name = score["name"]
    unit = "" if name.endswith("rank") else " (%)"
    ends = " to ".join(display(name, score[end]) for end in ("low", "high"))
    count = f"{score['count']:,} examples"
    return f"{name.replace('_', ' ')}{unit}, 95 % interval {ends}, {count}"


def _table(scores: Sequence[PublicScore]) -> str:
    rows = [
        [
            item.task,
            score["name"].replace("_", " "),
            f"{in_published_unit(score['name'], score['value']):.2f}",
            f"{in_published_unit(score['name'], score['low']):.2f}–"
            f"{in_published_unit(score['name'], score['high']):.2f}",
            f"{score['count']:,}",
            item.protocol,
        ]
        for item in scores
        for score in item.scores
    ]
    heads = ["benchmark", "score", "value, %", "95 % interval", "examples", "protocol"]
    about = [
        f"* `{item.task}`: {item.about}. "
        + f"{item.source} (licence: {item.licence}). " * bool(item.source)
        + item.sentence(item.scores[0])
        for item in scores
    ]
    ranks = "Ranks are counted from 1, all other values are per cent."
    return "\n".join([table(heads, rows), "", ranks, "", *about])


def _url(repo: str) -> str:
    return f"https://huggingface.co/{repo}"


def _yaml(values: Any) -> str:
    return str(yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000))
