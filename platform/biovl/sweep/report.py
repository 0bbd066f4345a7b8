"""Reports of a sweep: the dry run, and the published tables, plots and best recipe."""

from collections.abc import Sequence

import yaml

from biovl.core import config as configs
from biovl.core import markdown
from biovl.core.folders import Folder
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.mixture import LENGTHS_OF_TEXT, reads_text_alone
from biovl.sweep import plots, tables
from biovl.sweep.config import SweepConfig
from biovl.sweep.outcomes import FINISHED, TrialOutcome
from biovl.sweep.trials import Trial, validation_corpora

BEST = "best.yaml"


def write(folder: Folder, config: SweepConfig, outcomes: Sequence[TrialOutcome]) -> str | None:
    """Write the reports of a sweep; return the name of the best trial.

    Args:
        folder: Output folder of the sweep.
        config: Configuration of the sweep.
        outcomes: Outcomes of all trials, in the order of the table.
    """
    trials = tables.trials_table(outcomes)
    folder.write("trials.parquet", tables.parquet(trials))
    folder.write("trials.csv", tables.csv(trials))
    folder.write("curves.parquet", tables.parquet(tables.curves_table(outcomes)))
    drawn = plots.plots(outcomes)
    for name, png in drawn.items():
        folder.write(f"plots/{name}", png)
    row = tables.best_row(outcomes)
    best = None
    if row is not None:
        best = next(outcome for outcome in row if outcome.status == FINISHED)
        folder.write(BEST, recipe_file(best.trial.config, given=_given(outcomes)).encode())
    folder.write("README.md", _readme(config, outcomes, best, list(drawn)).encode())
    return None if best is None else best.trial.name


def recipe_file(config: PretrainConfig, *, given: Sequence[str] = ("corpus", "out")) -> str:
    """Return a configuration as a YAML recipe, without settings to be given on the command line."""
    plain = configs.to_plain(config)
    values = {name: value for name, value in plain.items() if name not in given}
    dumped: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return f"# {_command(given)}\n{dumped}"


def _given(outcomes: Sequence[TrialOutcome]) -> tuple[str, ...]:
    """Return the settings that the best recipe leaves open: the corpus, unless it was compared."""
    corpora = {outcome.trial.config.corpora for outcome in outcomes}
    return ("out",) if len(corpora) > 1 else ("corpus", "out")


_OF_TEXT = (
    "Compute and tokens cut are those of `text`: lengths of the other texts of `data.text` are not "
    "stored."
)


def _command(given: Sequence[str]) -> str:
    return " ".join([f"biovl pretrain {BEST}", *(f"--set {name}=DIR" for name in given)])


def dry_run(config: SweepConfig, trials: Sequence[Trial]) -> str:
    """Return the trials with their changed settings and estimated times, as text."""
    kinds = list(dict.fromkeys(kind for trial in trials for kind in trial.gpu_hours))
    heads = ["trial", "changes", "epochs", "compute", "tokens cut", *(f"{k} h" for k in kinds)]
    first = trials[0]
    body = [
        [
            trial.name,
            " ".join(f"{name}={value}" for name, value in trial.changes.items()) or "(base)",
            str(trial.config.epochs),
            f"{trial.flops / first.flops:.2f}x",
            markdown.percent(trial.tokens_cut),
            *(_hours(trial.gpu_hours.get(kind)) for kind in kinds),
        ]
        for trial in trials
    ]
    total = [_hours(sum(trial.gpu_hours.get(kind, 0.0) for trial in trials)) for kind in kinds]
    body.append(["all", "", "", "", "", *total])
    table = markdown.plain_table([heads, *body], left=range(len(heads)))
    sizes = sorted({trial.train_pairs for trial in trials})
    lines_of_trials = [
        f"{len(trials)} trials, equal in {config.equal}, of "
        f"{' or '.join(f'{size:,}' for size in sizes)} pairs",
        *([] if all(reads_text_alone(t.config) for t in trials) else [LENGTHS_OF_TEXT]),
        "",
        *(line.strip() for line in table),
        "",
        "Hours of one GPU (of all together, where a run needs several), estimated from "
        "published rates.",
    ]
    return "\n".join(lines_of_trials) + "\n"


def _hours(hours: float | None) -> str:
    if hours is None:
        return "–"
    return f"{hours:,.1f}" if hours >= 0.1 else f"{hours:.4f}"


def _corpora(outcomes: Sequence[TrialOutcome]) -> str:
    trials = [outcome.trial for outcome in outcomes]
    sizes = " and ".join(f"{count:,}" for count in dict.fromkeys(t.train_pairs for t in trials))
    corpora = list(dict.fromkeys(uri for trial in trials for uri in trial.config.corpora))
    if len(corpora) == 1:
        return f"one corpus ({sizes} pairs)"
    if len(validation_corpora(trials)) == 1:
        return f"{len(corpora)} corpora ({sizes} pairs an epoch), scored on val of the first,"
    return f"{len(corpora)} corpora ({sizes} pairs), each scored on its own val,"


def _readme(
    config: SweepConfig,
    outcomes: Sequence[TrialOutcome],
    best: TrialOutcome | None,
    drawn: Sequence[str],
) -> str:
    given = configs.flat(config.base, keep_empty=True)
    base = ", ".join(f"`{name}={value}`" for name, value in given.items())
    trials, pools = [outcome.trial for outcome in outcomes], tables.pool_sizes(outcomes)
    among = " or ".join(f"{pool:,}" for pool in pools) or "0"
    chance = " or ".join(f"{100 / pool:.2f}" for pool in pools) or "0.00"
    lines = [
        "# Sweep",
        "",
        f"{len(outcomes)} runs of pretrain on {_corpora(outcomes)} "
        f"with {base or 'recipes of their own'}, equal in {config.equal}. "
        f"Recalls are in percent, among {among} pairs of val (by chance {chance}); the more pairs, "
        "the harder.",
        "",
        tables.paper_table(config, outcomes),
        "",
        "Compute is that of the run relative to the first row. Tokens cut are those of captions "
        "beyond the context. Epochs such as 4 of 8 are those of the scores: the models of these "
        "epochs are published.",
        *([] if all(reads_text_alone(t.config) for t in trials) else ["", _OF_TEXT]),
    ]
    if config.source:
        lines += ["", config.source]
    if best is not None:
        name = best.trial.name
        lines += [
            "",
            f"Best by the mean of both R@1: [`{name}`](trials/{name}/README.md). Its "
            f"settings are a recipe: `{_command(_given(outcomes))}`.",
            *(["", "Its results are doubtful:", ""] if best.warnings else []),
            *(f"* {warning}" for warning in best.warnings),
        ]
    differing = [
        *(["on val of different corpora"] if len(validation_corpora(trials)) > 1 else []),
        *(["among different numbers of pairs"] if len(pools) > 1 else []),
    ]
    if differing:
        lines += [
            "",
            f"No row is the best: recalls {' and '.join(differing)} cannot be compared. "
            "Compare the models with `biovl benchmark retrieval` on one corpus.",
        ]
    lines += ["", *(f"![{name.removesuffix('.png')}](plots/{name})" for name in drawn)]
    return "\n".join(lines) + "\n"
