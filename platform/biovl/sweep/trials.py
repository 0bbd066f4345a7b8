"""The trials of a sweep: complete configurations of pretrain, and their estimated compute."""

import itertools
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from biovl.core import config as configs
from biovl.core.artifacts import Manifest, find_manifest, read_manifest, recorded_inputs
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.filesystems import below, without_credentials
from biovl.pretrain import estimate, memory
from biovl.pretrain.checks import check_run
from biovl.pretrain.config import RECIPES, MixtureConfig, PretrainConfig, identity
from biovl.pretrain.fork import Fork, find_fork, steps_before
from biovl.pretrain.mixture import Mixture, read_mixture, reads_text_alone, text_tokens
from biovl.pretrain.models import complete_model, describe
from biovl.pretrain.schedule import Plan
from biovl.sweep.config import Setting, SweepConfig

FOLDER = "trials"
"""Subfolder of the sweep: one folder for each trial, a published model once it has finished."""

_SPECIAL_TOKENS = 2
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial: a run of pretrain, with estimates of its compute."""

    name: str
    """Name of the trial, also of its folder."""

    row: int
    """Row of the table; trials of a row differ only in their seeds."""

    shown: Mapping[str, str | int | float]
    changes: Mapping[str, Any]
    """Settings that differ from ``base``."""

    paper: Mapping[str, float]
    config: PretrainConfig
    context: int
    image_px: int
    flops_per_pair: float
    """FLOPs per pair in training, without padding."""

    gpu_hours: Mapping[str, float]
    """Estimated hours, by kind of GPU."""

    tokens_cut: float
    """Share of all caption tokens that the context cuts off."""

    padding: float
    """Share of the context that would be padding, if every caption were padded to it."""

    train_pairs: int
    val_pairs: int
    """Pairs of val by which the trial is scored."""

    steps_before: int
    """Steps of the plan that the run does not do itself, as it continues another one."""

    @property
    def flops(self) -> float:
        """FLOPs of the run itself; a fork excludes the steps of the run that it continues."""
        return self.whole_flops - self.flops_per_pair * self._plan.pairs_before(self.steps_before)

    @property
    def whole_flops(self) -> float:
        """FLOPs of all epochs, including those that a fork continues."""
        return self.flops_per_pair * self._plan.pairs

    @property
    def flops_per_epoch(self) -> float:
        """FLOPs of one epoch."""
        return self.whole_flops / self.config.epochs

    @property
    def _plan(self) -> Plan:
        return Plan.of(self.train_pairs, self.config.batch, self.config.epochs)


def trials_of(config: SweepConfig) -> list[Trial]:
    """Return the trials of a sweep, in the order of its table.

    Raises:
        ConfigError: If a trial is not a valid run of pretrain on its corpus (with its name); a
            corpus has fewer than two val pairs; ``asha`` would compare recalls on different val
            corpora or pool sizes; or a trial continues the last checkpoint of an unpublished run.
        ArtifactError: If a corpus is not valid, or pretrained weights do not exist.
    """
    known = _Known(is_begun=recorded_inputs(config.out) is not None)
    # The corpus of the sweep itself, even if every trial names its own.
    _check_val(config.corpus, read_manifest(config.corpus, "corpus"))
    found: list[Trial] = []
    for row, setting in enumerate(_rows(config)):
        if config.equal == "compute" and "epochs" in setting.changes:
            raise ConfigError(
                f"equal=compute chooses the epochs of each row, and the rows ({setting.shown}) set "
                "them: leave epochs out of the grid, or set equal=epochs"
            )
        for seed in range(config.seeds):
            name = f"{row:02d}{_slug(setting.shown)}-seed-{seed}"
            built = _built(config, setting, name, seed)
            if config.equal == "compute" and not reads_text_alone(built):
                raise ConfigError(
                    f"trial {name}: equal=compute needs the lengths of what data.text reads, and "
                    "corpora store those of text alone: set equal=epochs"
                )
            trial = _trial(built, setting, row, name, known)
            if config.equal == "compute" and found:
                trial = _as_costly_as(found[0], trial, setting, known)
            found.append(trial)
    val = validation_corpora(found)
    if config.asha.reduction > 1 and len(val) > 1:
        raise ConfigError(
            f"asha.reduction={config.asha.reduction} compares trials by recall, which is measured "
            f"on val of different corpora ({', '.join(val)}) and cannot be compared. Set "
            "asha.reduction=1, or begin the corpora of every trial with the same one"
        )
    pools = sorted({trial.val_pairs for trial in found})
    if config.asha.reduction > 1 and len(pools) > 1:
        among = " or ".join(f"{pool:,}" for pool in pools)
        raise ConfigError(
            f"asha.reduction={config.asha.reduction} compares trials by recall, but measures it "
            f"among {among} pairs of val: recall is higher among fewer pairs. "
            "Set asha.reduction=1, or the same validation.pairs for every trial"
        )
    return found


def check_rungs(config: SweepConfig, trials: Sequence[Trial]) -> None:
    """Check that trials can be stopped early, and are compared fairly.

    Raises:
        ConfigError: If no trial has scores between the first rung and its end, or, with
            ``equal=compute``, a trial's first validation comes after the compute of the first rung.
    """
    # Rungs of a sweep that was begun are settings that cannot change.
    if config.asha.reduction == 1 or recorded_inputs(config.out) is not None:
        return
    last = max(_last_scored(config, trials[0], trial) for trial in trials)
    if config.asha.first_epochs > last:
        raise ConfigError(
            f"asha.first_epochs={config.asha.first_epochs}: before their ends, trials have scores "
            f"up to epoch {last:g}, so none would be stopped early. Set fewer, a lower "
            "base.validation.every_epochs, or asha.reduction=1"
        )
    if config.equal != "compute":
        return
    for trial in trials:
        every = trial.config.validation.every_epochs
        costs = every * trial.flops_per_epoch / trials[0].flops_per_epoch
        if costs > config.asha.first_epochs + _ROUNDING:
            raise ConfigError(
                f"trial {trial.name}: its first validation (validation.every_epochs={every}) has "
                f"the compute of {costs:.2f} epochs of the first trial, more than "
                f"asha.first_epochs={config.asha.first_epochs}: it would be compared with trials "
                f"that had less. Set asha.first_epochs={math.ceil(costs)}, or equal=epochs"
            )


def times_of(config: SweepConfig, first: Trial, trial: Trial) -> list[float]:
    """Return the progress of a trial at the end of each epoch, in the unit of ASHA's rungs.

    With ``equal=epochs`` it is the number of epochs; with ``equal=compute`` the FLOPs of the run
    itself, in epochs of the first trial.
    """
    epochs = range(1, trial.config.epochs + 1)
    if config.equal == "epochs":
        return [float(epoch) for epoch in epochs]
    before = trial.whole_flops - trial.flops
    done = [epoch * trial.flops_per_epoch - before for epoch in epochs]
    # Rounded: the first trial would miss its rungs by an error of the last digit.
    return [round(flops / first.flops_per_epoch, 6) for flops in done]


def _last_scored(config: SweepConfig, first: Trial, trial: Trial) -> float:
    """Return the progress at the last validation before the end of a trial; 0 without one."""
    every = trial.config.validation.every_epochs
    return max(times_of(config, first, trial)[every - 1 : -1 : every], default=0)


def validation_corpora(trials: Sequence[Trial]) -> list[str]:
    """Return the corpora on whose val trials are scored: the first of each trial."""
    return list(dict.fromkeys(trial.config.corpora[0] for trial in trials))


def corpora_of(config: SweepConfig, trials: Sequence[Trial]) -> list[str]:
    """Return the corpora that the trials train on, that of the sweep first."""
    own = (uri for trial in trials for uri in trial.config.corpora)
    return list(dict.fromkeys([config.corpus, *own]))


def identity_of(config: SweepConfig, trials: list[Trial]) -> dict[str, Any]:
    """Return the settings that define a sweep, without its location and resources."""
    what = {
        "trials": {trial.name: identity(configs.to_plain(trial.config))[0] for trial in trials},
        "asha": configs.to_plain(config)["asha"],
        "equal": config.equal,
        "columns": list(config.columns),
        "source": config.source,
        "paper": {trial.name: dict(trial.paper) for trial in trials},
    }
    plain: dict[str, Any] = json.loads(json.dumps(what))
    return plain


def defaults_of(trials: list[Trial]) -> configs.Defaults:
    """Return the defaults of the settings that ``identity_of`` returns."""
    return {
        ("trials", trial.name, *path): value
        for trial in trials
        for path, value in configs.defaults(PretrainConfig).items()
    }


def waste(lengths_N: np.ndarray, context: int) -> tuple[float, float]:
    """Return the share of caption tokens that are truncated, and of the context that is padding.

    Args:
        lengths_N: Tokens of each caption, start and end included. Shape [N], N >= 1.
        context: Context length of the text tower, in tokens.
    """
    kept_N = np.minimum(lengths_N, context)
    cut = 1 - (kept_N - _SPECIAL_TOKENS).sum() / max((lengths_N - _SPECIAL_TOKENS).sum(), 1)
    return float(cut), float(1 - kept_N.mean() / context)


def _rows(config: SweepConfig) -> list[Setting]:
    """Return every row of the table with every point of the grid."""
    axes = configs.flat(config.grid)
    for name, values in axes.items():
        if not isinstance(values, list | tuple) or not values:
            raise ConfigError(f"grid.{name}: give a list of values, got {values!r}")
    _check_axes(axes, config)
    rows = []
    for setting in config.settings:
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            shown = {name: _word(value) for name, value in point.items()}
            rows.append(
                Setting(
                    shown={**setting.shown, **shown},
                    recipe=setting.recipe,
                    changes={**setting.changes, **point},
                    # With another setting changed it is no longer the paper's row.
                    paper={} if point else setting.paper,
                )
            )
    return rows


def _check_axes(axes: Collection[str], config: SweepConfig) -> None:
    """Check that the grid changes nothing that tells the trials of a table apart.

    Raises:
        ConfigError: If the rows or the seeds set a setting of the grid, or a part of one.
    """
    of_rows = {
        name
        for setting in config.settings
        for name in configs.flat(setting.changes, keep_empty=True)
    }
    for axis in axes:
        if any(
            f"{name}.".startswith(f"{axis}.") or f"{axis}.".startswith(f"{name}.")
            for name in of_rows
        ):
            raise ConfigError(f"grid.{axis}: the rows of this space set it; use `biovl sweep grid`")
        if axis == "seed" and config.seeds > 1:
            raise ConfigError(
                f"grid.seed: seeds={config.seeds} sets the seeds of each row; use one of the two"
            )


def _word(value: Any) -> str | int | float:
    return value if isinstance(value, str | int | float) else json.dumps(value)


def _built(config: SweepConfig, setting: Setting, name: str, seed: int) -> PretrainConfig:
    base = configs.flat(config.base, keep_empty=True)
    named = base.pop("recipe", None)
    if setting.recipe and named:
        raise ConfigError(
            f"base.recipe: the rows of this space are recipes of their own ({setting.recipe} …); "
            "change them by base.NAME=VALUE, or sweep something else over "
            f"{named}"
        )
    recipe = setting.recipe or named
    if recipe is None:
        raise ConfigError(
            "base.recipe is not set: it is the recipe of pretrain that the trials change; choose "
            f"from {', '.join(RECIPES)}"
        )
    if recipe not in RECIPES:
        raise ConfigError(
            f"base.recipe: there is no recipe {recipe!r}; choose from {', '.join(RECIPES)}"
        )
    if "out" in {**base, **setting.changes}:
        raise ConfigError(
            f"trial {name}: out cannot be set for trials: each has its own folder below "
            f"{config.out}/{FOLDER}"
        )
    where = {"corpus": config.corpus, "out": below(config.out, f"{FOLDER}/{name}")}
    try:
        built = configs.override(RECIPES[recipe](), where)
        built = configs.override(built, base)
        built = configs.override(built, setting.changes)
        return complete_model(configs.override(built, {"seed": built.seed + seed}))
    except ConfigError as error:
        raise ConfigError(f"trial {name}: {error}") from error


def _check_val(uri: str, manifest: Manifest) -> None:
    val = manifest.counts["pairs"]["val"]
    if val < 2:
        raise ConfigError(f"{uri} has {val} pairs in val: trials are compared by them")


class _Known:
    """Cache of corpora and models: trials share most of them.

    Args:
        is_begun: Whether the sweep was begun or published before.
    """

    def __init__(self, *, is_begun: bool) -> None:
        self.is_begun = is_begun
        self._data: dict[tuple[tuple[str, ...], MixtureConfig], tuple[Mixture, np.ndarray]] = {}
        self._models: dict[str, memory.ModelInfo] = {}

    def data(self, config: PretrainConfig) -> tuple[Mixture, np.ndarray]:
        """Return the corpora of a trial, and the tokens of each caption of an epoch.

        Start and end are included. Shape [N], int32.

        Raises:
            ConfigError: If the first has too few val pairs to compare trials.
            ArtifactError: If one is not a corpus.
        """
        key = config.corpora, config.mixture
        if key not in self._data:
            mixture = read_mixture(config)
            _check_val(config.corpora[0], mixture.parts[0].manifest)
            # The index counts CLIP's tokens without start and end.
            self._data[key] = mixture, text_tokens(config, mixture) + _SPECIAL_TOKENS
        return self._data[key]

    def model(self, config: PretrainConfig) -> memory.ModelInfo:
        """Return the description of a model.

        Raises:
            ConfigError: If the settings do not define a model.
        """
        plain = configs.to_plain(config)
        key = json.dumps([plain["model"], plain["optim"]], sort_keys=True)
        if key not in self._models:
            described = describe(config.model, config.optim)
            self._models[key] = memory.model_info(described, config.optim)
        return self._models[key]


def _trial(config: PretrainConfig, setting: Setting, row: int, name: str, known: _Known) -> Trial:
    try:
        (mixture, lengths_N), info = known.data(config), known.model(config)
        # A published model needs no pretrained weights.
        fork = None
        if find_manifest(config.out) is None:
            plan = check_run(config, mixture, image_px=info.image_size)
            fork = find_fork(config, mixture, plan)
            # What earlier versions have begun resumes.
            if fork is not None and not known.is_begun:
                _check_step(config, fork)
    except (ConfigError, ArtifactError) as error:
        raise type(error)(f"trial {name}: {error}") from error
    val, steps_done = mixture.pairs["val"], steps_before(config, fork)
    cost = estimate.estimate(config, info, lengths_N, steps_done=steps_done)
    tokens_cut, padding = waste(lengths_N, info.context)
    hours = {
        each.accelerator.name: each.workers * each.hours
        for each in cost.forecasts
        if each.hours is not None
    }
    return Trial(
        name=name,
        row=row,
        shown=setting.shown,
        changes={**({"recipe": setting.recipe} if setting.recipe else {}), **setting.changes},
        paper=setting.paper,
        config=config,
        context=info.context,
        image_px=info.image_size,
        flops_per_pair=cost.flops,
        gpu_hours=hours,
        tokens_cut=tokens_cut,
        padding=padding,
        train_pairs=len(lengths_N),
        val_pairs=min(config.validation.pairs or val, val),
        steps_before=steps_done,
    )


def _check_step(config: PretrainConfig, fork: Fork) -> None:
    """Check that all trials continue the same checkpoint, whenever they start.

    Raises:
        ConfigError: If it is the last one of a run that may be writing further ones.
    """
    uri, wanted = config.checkpoint or ("", "")
    if wanted == "last" and find_manifest(uri) is None:
        shown = without_credentials(uri)
        raise ConfigError(
            f"from: trials start one after another, and {shown}@last may be a later checkpoint by "
            f"then. Name the step, which is now {shown}@{fork.step}"
        )


def _as_costly_as(first: Trial, trial: Trial, setting: Setting, known: _Known) -> Trial:
    """Return a trial with the number of epochs closest to the compute of the first trial.

    The epochs of its cooldown change in proportion.
    """
    wanted = first.flops + trial.whole_flops - trial.flops
    epochs = max(1, round(wanted / trial.flops_per_epoch))
    changes = {"epochs": epochs}
    cooldown = trial.config.optim.cooldown_epochs
    if cooldown is not None:
        changes["optim.cooldown_epochs"] = max(1, round(cooldown * epochs / trial.config.epochs))
    try:
        changed = configs.override(trial.config, changes)
    except ConfigError as error:
        raise ConfigError(f"trial {trial.name}: equal=compute: {error}") from error
    return _trial(changed, setting, trial.row, trial.name, known)


def _slug(shown: Mapping[str, Any]) -> str:
    words = " ".join(f"{name.rpartition('.')[2]} {value}" for name, value in shown.items())
    slug = re.sub(r"[^a-z0-9.]+", "-", words.lower().replace("+", "")).strip("-.")[:60].rstrip("-.")
    return f"-{slug}" if slug else ""
