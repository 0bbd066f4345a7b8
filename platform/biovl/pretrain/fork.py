"""The start of a run at a checkpoint of another one: a fork.

The driver maps the checkpoint to the settings of the fork and stores it as the first checkpoint of
the fork, before the workers start. From then on the fork resumes as any run, and never reads the
other run again.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from biovl.core import config as configs
from biovl.core.artifacts import Draft, find_manifest, fingerprint, refuse_overlap, unpublished
from biovl.core.errors import ArtifactError, ConfigError, SettingsDiffer
from biovl.core.filesystems import without_credentials
from biovl.models.builders.open_clip import Described
from biovl.pretrain.changes import changed_settings, describe_changes
from biovl.pretrain.config import PretrainConfig, identity
from biovl.pretrain.lineage import (
    LINEAGE,
    first_step,
    pairs_seen,
    read_lineage,
    seen_val_warning,
)
from biovl.pretrain.mixture import (
    Mixture,
    count_seen_val,
    draws_of,
    input_names,
    inputs_of,
    read_mixture,
)
from biovl.pretrain.models import describe
from biovl.pretrain.optimizer import make_optimizer, parameter_names
from biovl.pretrain.rollback import read_rollbacks, skipped_pairs, skipped_steps
from biovl.pretrain.schedule import Plan, learning_rate
from biovl.runtime.checkpoints import Checkpoints

_SHOWN = 3
"""Number of names in messages."""

_OTHER_LOSSES = (
    "corpus",
    "mixture.",
    "data.",
    "batch.",
    "step.loss",
    "step.distill.",
    "optim.warmup_steps",
)
"""Settings that change the level of the loss, which ``guard`` compares with earlier steps."""

_OF_LOSS = {"logit_bias"}
"""Tensors that a model has for some losses alone. A fork with another loss begins with its own."""


@dataclass(frozen=True)
class Run:
    """The run that is forked."""

    uri: str
    config: PretrainConfig
    what: Mapping[str, Any]
    """The settings that define it."""

    fingerprints: Sequence[str]
    """Fingerprints of its corpora, in the order of the setting ``corpus``."""

    lineage: Sequence[Mapping[str, Any]]
    rollbacks: Sequence[Mapping[str, Any]]
    counts: Mapping[str, Any] | None
    """Counts of its manifest; None if it is not published."""


@dataclass(frozen=True)
class Fork:
    """The checkpoint that a run starts from, and the position in its own plan."""

    run: Run
    plan: Plan
    """Plan of the other run."""

    step: int
    """Number of steps of the other run at the checkpoint."""

    steps_done: int
    """Number of steps of the new run that this counts as."""

    changes: Sequence[Mapping[str, Any]]
    """Settings that differ; see ``changed_settings``."""

    is_same_data: bool
    """Whether an epoch has the same pairs in the same order."""

    corpora: Sequence[str]
    """Corpora that the weights were trained on, by the other run and those it descends from."""

    seen_val: int | None
    """Number of val pairs whose article, group or image is in train of these corpora; None if the
    corpora cannot be read."""

    lines: Sequence[str]
    """Description, for the log and for ``--dry-run``."""


def find_fork(config: PretrainConfig, mixture: Mixture, plan: Plan) -> Fork | None:
    """Return the fork that a run starts with; None if not a fork, or if it has own checkpoints.

    The checkpoint in ``from`` is not read.

    Args:
        config: Configuration of the run.
        mixture: Its corpora.
        plan: Its plan.

    Raises:
        ConfigError: If there is no such checkpoint, or nothing is left to train.
        ArtifactError: If ``from`` is not a run of pretrain, or has another architecture.
    """
    if config.checkpoint is None or Checkpoints(config.out).steps():
        return None
    uri, wanted = config.checkpoint
    refuse_overlap(config.out, {"from": uri})
    run = _open(uri)
    _check_architecture(run, config)
    is_same_data, draws = _compare_data(run, config, mixture)
    run_plan = Plan.of(draws, run.config.batch, run.config.epochs)
    step = _find_step(uri, wanted, run_plan)
    what, _ = identity(configs.to_plain(config))
    before = configs.with_defaults(run.what, what, configs.defaults(PretrainConfig))
    changes = [
        each
        for each in changed_settings(before, what)
        if each["setting"] not in ("from", "from_state")
    ]
    steps_done, lines = 0, [f"starts with the weights of {_shown(uri)} at step {step:,}"]
    if config.from_state == "all":
        both = draws, mixture.draws
        steps_done, lines = _position(config, run, run_plan, step, plan, both)
        if not is_same_data:
            lines.append(
                "its epochs had other pairs or another order: the rest of this epoch may repeat "
                "pairs of its first part, and leaves out others; the next epochs are complete"
            )
    lines.append(f"settings that differ: {describe_changes(changes) or 'none'}")
    of_ancestors = (uri for entry in run.lineage for uri in entry.get("corpora", ()))
    corpora = list(dict.fromkeys([*run.config.corpora, *of_ancestors]))
    seen_val = _seen_val(config.corpora[0], corpora, mixture)
    told = seen_val_warning({"corpora": corpora, "seen_val": seen_val})
    lines += [told] if told else []
    return Fork(run, run_plan, step, steps_done, changes, is_same_data, corpora, seen_val, lines)


def _seen_val(corpus: str, others: Sequence[str], mixture: Mixture) -> int | None:
    others = tuple(uri for uri in others if uri != corpus)
    if not others or not mixture.pairs["val"]:
        return 0
    try:
        return count_seen_val(corpus, others)
    except ArtifactError:
        return None


def start_fork(
    fork: Fork,
    config: PretrainConfig,
    plan: Plan,
    built: Described,
    draft: Draft,
    say: Callable[[str], None],
) -> None:
    """Write the first checkpoint of a fork, and its lineage.

    Args:
        fork: Result of ``find_fork``.
        config: Configuration of the run.
        plan: Its plan.
        built: Its model, on the CPU; frozen parameters have ``requires_grad=False``.
        draft: Its draft.
        say: Logs a message.

    Raises:
        ArtifactError: If the checkpoint is corrupt or does not fit the model.
    """
    uri, step = fork.run.uri, fork.step
    state = _load(uri, step)
    own = built.model.state_dict()
    _check_tensors(uri, _shapes(state["model"]), _shapes(own))
    optimizer = make_optimizer(built.model, config.optim)
    names = parameter_names(built.model, optimizer)
    new: dict[str, Any] = {
        "steps_done": fork.steps_done,
        "model": {name: state["model"].get(name, tensor) for name, tensor in own.items()},
        "optimizer": optimizer.state_dict(),
        "parameters": names,
    }
    fresh = list(names)
    if config.from_state == "all":
        other = describe(fork.run.config.model, fork.run.config.optim).model
        made = make_optimizer(other, fork.run.config.optim)
        # Checkpoints of earlier versions have no names; their order is that of the optimizer.
        saved_names = state.get("parameters") or parameter_names(other, made)
        if type(made) is type(optimizer):
            new["optimizer"], fresh = map_optimizer(
                state["optimizer"], saved_names, made.state_dict(), new["optimizer"], names
            )
            _check_moments(uri, new["optimizer"], names, dict(built.model.named_parameters()))
        say(_carried_over(names, fresh))
        if fork.is_same_data and not _changes_loss(fork.changes) and "guard" in state:
            new["guard"] = state["guard"]
    # The lineage first: a checkpoint counts as a start that is complete.
    draft.note(LINEAGE, [*fork.run.lineage, _entry(fork, plan, len(fresh))])
    own = Checkpoints(config.out)
    own.save(new)
    own.wait()


@contextlib.contextmanager
def advise_fork(out: str) -> Iterator[None]:
    """Add to ``SettingsDiffer`` raised in the block how to continue the run as a fork.

    Raises:
        SettingsDiffer: With the added advice.
    """
    try:
        yield
    except SettingsDiffer as error:
        shown, steps = _shown(out), Checkpoints(out).steps()
        if steps:
            advice = (
                f"To continue it with these settings, add --set from={shown}@{steps[-1]} to the "
                "command, and set out to a new folder."
            )
        elif find_manifest(out) is None:
            advice = "It has no checkpoint yet that a fork could continue."
        else:
            advice = (
                "It kept no checkpoints that a fork could continue (save.keep_every keeps them); "
                f"--set model.weights={shown} starts a new run with its weights."
            )
        raise SettingsDiffer(f"{error}\n{advice}") from error


def steps_before(config: PretrainConfig, fork: Fork | None) -> int:
    """Return the number of steps of a run's plan that precede its start: 0 unless it is a fork.

    Args:
        config: Configuration of the run.
        fork: Result of ``find_fork``.
    """
    if fork is not None:
        return fork.steps_done
    manifest = find_manifest(config.out) if config.from_ else None
    lineage = read_lineage(Draft(config.out)) if manifest is None else manifest.notes[LINEAGE]
    return first_step(lineage)


def map_optimizer(
    saved: Mapping[str, Any],
    saved_names: Sequence[str],
    made: Mapping[str, Any],
    fresh: Mapping[str, Any],
    names: Sequence[str],
) -> tuple[dict[str, Any], list[str]]:
    """Return the state of an optimizer for other parameters, and the names of those without state.

    State is mapped by the name of the parameter. Settings of groups are those of the new optimizer.
    A value of a saved group that changed since ``made``, such as a step counter, is state: a new
    group gets it from the saved group that contains its first parameter with state.

    Args:
        saved: ``state_dict`` of the other optimizer.
        saved_names: Names of its parameters, by number.
        made: ``state_dict`` of that optimizer before its first step.
        fresh: ``state_dict`` of the new optimizer.
        names: Names of its parameters, by number.
    """
    number_of = {name: number for number, name in enumerate(saved_names)}
    state = {
        number: saved["state"][number_of[name]]
        for number, name in enumerate(names)
        if number_of.get(name) in saved["state"]
    }
    group_of = {
        number: place
        for place, group in enumerate(saved["param_groups"])
        for number in group["params"]
    }
    groups = []
    for group in fresh["param_groups"]:
        origin = next((number_of[names[n]] for n in group["params"] if n in state), None)
        counted = {}
        if origin is not None:
            before = made["param_groups"][group_of[origin]]
            counted = {
                key: value
                for key, value in saved["param_groups"][group_of[origin]].items()
                if key != "params" and before.get(key, ...) != value
            }
        groups.append({**group, **counted})
    without = [name for number, name in enumerate(names) if number not in state]
    return {"state": state, "param_groups": groups}, without


def _open(uri: str) -> Run:
    """Return the run in a folder, published or not."""
    manifest = find_manifest(uri)
    draft = Draft(uri)
    if manifest is not None:
        kind, what, inputs = manifest.kind, manifest.config, manifest.inputs
        read = {f"{item.name} {item.uri}": item.fingerprint for item in inputs}
        lineage = manifest.notes.get(LINEAGE, [])
        rollbacks = manifest.notes.get("rollbacks", [])
    else:
        begun = draft.read_note("begun")
        if begun is None:
            raise ArtifactError(f"from: {unpublished(uri)}; expected the folder of a pretrain run")
        kind, what, read = begun["kind"], begun["config"], begun["inputs"]
        lineage, rollbacks = read_lineage(draft), read_rollbacks(draft)
    if kind != "model" or not {"corpus", "batch", "optim"} <= what.keys():
        raise ArtifactError(
            f"from: {_shown(uri)} holds {kind}, but not of pretrain; expected the folder of a "
            "pretrain run"
        )
    try:
        config = configs.build(PretrainConfig, {**what, "out": uri}, name=f"from: {_shown(uri)}")
    except ConfigError as error:
        raise ArtifactError(f"{error}\nIt was written by pretrain of another version.") from error
    named = zip(input_names(config), config.corpora, strict=True)
    return Run(
        uri=uri,
        config=config,
        what=what,
        fingerprints=[read[f"{name} {corpus}"] for name, corpus in named],
        lineage=lineage,
        rollbacks=rollbacks,
        counts=None if manifest is None else manifest.counts,
    )


def _compare_data(run: Run, config: PretrainConfig, mixture: Mixture) -> tuple[bool, int]:
    """Return whether the data is the same as in the forked run, and pairs per epoch of that run.

    The data is the same if an epoch has the same pairs in the same order.
    """
    other = run.config
    if run.fingerprints == [item.fingerprint for item in inputs_of(config)]:
        draws = draws_of(other.mixture, [part.pairs for part in mixture.parts])
        is_same = (
            draws == [part.draws for part in mixture.parts]
            and other.seed == config.seed
            and other.data.run_pairs == config.data.run_pairs
        )
        return is_same, sum(draws)
    if run.counts is None:
        try:
            return False, read_mixture(other).draws
        except ArtifactError as error:
            raise ArtifactError(
                f"from: the corpus of {_shown(run.uri)} cannot be read, and is needed to find the "
                f"position in its epoch: {error}"
            ) from error
    parts = run.counts.get("corpora")
    if parts:
        return False, sum(part["draws_per_epoch"] for part in parts)
    return False, sum(draws_of(other.mixture, [run.counts["pairs"]["train"]]))


def _find_step(uri: str, wanted: str, plan: Plan) -> int:
    """Return the step of a checkpoint.

    Raises:
        ConfigError: If it does not exist; the message lists those that do.
    """
    steps, ends = Checkpoints(uri).steps(), plan.ends()
    if not steps:
        published = find_manifest(uri) is not None
        reason = (
            "it is published and kept none (save.keep_every keeps them). --set model.weights="
            f"{_shown(uri)} instead starts a new run with its weights"
            if published
            else "it saved none yet"
        )
        raise ConfigError(f"from: {_shown(uri)} has no checkpoints: {reason}")
    if wanted == "last":
        return steps[-1]
    step: int | None
    if wanted.startswith("epoch:"):
        epoch = int(wanted.partition(":")[2])
        step = ends[epoch - 1] if 1 <= epoch <= len(ends) else None
    else:
        step = int(wanted)
    if step is not None and step in steps:
        return step
    listed = [f"{n} (epoch:{ends.index(n) + 1})" if n in ends else str(n) for n in steps]
    raise ConfigError(
        f"from: {_shown(uri)} has no checkpoint of {wanted.replace(':', ' ')}; it has those of the "
        f"steps {', '.join(listed)}"
    )


def _position(
    config: PretrainConfig, run: Run, run_plan: Plan, step: int, plan: Plan, draws: tuple[int, int]
) -> tuple[int, list[str]]:
    """Return the steps that a run has done at a checkpoint of another, and log lines.

    It has done the same epochs, and the same pairs of the epoch that is not complete. If an epoch
    has more or fewer pairs, it is the same share of them.

    Args:
        config: Configuration of the run.
        run: The other run.
        run_plan: Plan of the other run.
        step: Step of the other run.
        plan: Plan of the run.
        draws: Pairs of an epoch of the other run, and of the run.

    Raises:
        ConfigError: If nothing is left to train.
    """
    epoch, pairs, last = len(run_plan.epochs), 0, run_plan.place(run_plan.steps - 1)
    if step < run_plan.steps:
        last = run_plan.place(step)
        epoch, pairs = last.epoch, last.step * last.batch_pairs
    there, here = draws
    steps_done = plan.steps_at(epoch, pairs if there == here else round(pairs * here / there))
    position = f"{epoch} epochs" + (f" and {pairs / there:.1%} of the next" if pairs else "")
    if steps_done >= plan.steps:
        raise ConfigError(
            f"from: at step {step:,} {_shown(run.uri)} has done {position}, and epochs="
            f"{config.epochs}: nothing is left to train. Set epochs to {epoch + 1} or more"
        )
    place = plan.place(steps_done)
    rate = learning_rate(config.optim, plan, place)
    lines = [
        f"continues {_shown(run.uri)} at step {step:,} of {run_plan.steps:,}, after {position}: "
        f"that is step {steps_done:,} of {plan.steps:,} here",
        f"the next learning rate is {rate:.3g}; there it was "
        f"{learning_rate(run.config.optim, run_plan, last):.3g}",
    ]
    left_out = place.step * place.batch_pairs - pairs
    if there == here and place.epoch == epoch and left_out:
        lines.append(f"leaves out {left_out:,} pairs of this epoch, to begin with a full batch")
    return steps_done, lines


def _entry(fork: Fork, plan: Plan, fresh: int) -> dict[str, Any]:
    """Return the checkpoint of a fork as an entry of its lineage."""
    run, step = fork.run, fork.step
    skipped = skipped_pairs(fork.plan, skipped_steps(run.rollbacks), step)
    return {
        "run": _shown(run.uri),
        "fingerprint": None if run.counts is None else fingerprint(run.uri),
        "step": step,
        "checkpoint_sha256": Checkpoints(run.uri).sha256(step),
        "pairs": pairs_seen(run.lineage, fork.plan, step) - skipped,
        "steps_done": fork.steps_done,
        "parameters_without_state": fresh,
        "corpora": list(fork.corpora),
        "seen_val": fork.seen_val,
        "changed": list(fork.changes),
    }


def _load(uri: str, step: int) -> dict[str, Any]:
    """Return the state of a checkpoint.

    Raises:
        ArtifactError: If it is corrupt; the message names the one before it.
    """
    checkpoints = Checkpoints(uri)
    try:
        return checkpoints.load(step)
    except ArtifactError as error:
        before = [other for other in checkpoints.steps() if other < step]
        advice = (
            f"The one before it: --set from={_shown(uri)}@{before[-1]}"
            if before
            else "There is none before it"
        )
        raise ArtifactError(f"from: {error}\n{advice}") from error


def _check_architecture(run: Run, config: PretrainConfig) -> None:
    if run.config.model != config.model:
        there, here = (describe(each.model).model.state_dict() for each in (run.config, config))
        _check_tensors(run.uri, _shapes(there), _shapes(here))


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _check_tensors(
    uri: str, there: Mapping[str, tuple[int, ...]], here: Mapping[str, tuple[int, ...]]
) -> None:
    """Compare the tensors of two models by name and shape.

    Raises:
        ArtifactError: If they differ; the message names tensors.
    """
    both = there.keys() & here.keys()
    others = [f"{n} {there[n]} there, {here[n]} here" for n in both if there[n] != here[n]]
    kinds = (
        ("have another shape", others),
        ("are only there", there.keys() - here.keys() - _OF_LOSS),
        ("are only here", here.keys() - there.keys() - _OF_LOSS),
    )
    differing = [f"{len(names)} {what}: {_some(names)}" for what, names in kinds if names]
    if differing:
        raise ArtifactError(
            f"from: {_shown(uri)} has another model. Of its tensors\n  "
            + "\n  ".join(differing)
            + "\nA fork has the same model; model.weights of a new run adapts position embeddings"
        )


def _check_moments(
    uri: str, state: Mapping[str, Any], names: Sequence[str], parameters: Mapping[str, nn.Parameter]
) -> None:
    """Compare the running averages of an optimizer with the shapes of the parameters.

    Raises:
        ArtifactError: If the names do not belong to them.
    """
    for number, values in state["state"].items():
        shape = parameters[names[number]].shape
        average = values.get("exp_avg")
        if isinstance(average, Tensor) and average.shape != shape:
            raise ArtifactError(
                f"from: the optimizer's state of {_shown(uri)} does not fit {names[number]}: "
                f"{tuple(average.shape)} there, {tuple(shape)} here. from_state=weights takes the "
                "weights alone"
            )


def _carried_over(names: Sequence[str], fresh: Sequence[str]) -> str:
    line = f"optimizer: the state of {len(names) - len(fresh):,} of {len(names):,} parameters"
    return f"{line}; {len(fresh):,} start without: {_some(fresh)}" if fresh else line


def _changes_loss(changes: Sequence[Mapping[str, Any]]) -> bool:
    return any(each["setting"].startswith(_OTHER_LOSSES) for each in changes)


def _some(names: Collection[str]) -> str:
    few = sorted(names)[:_SHOWN]
    return ", ".join(few) + (" …" if len(names) > len(few) else "")


def _shown(uri: str) -> str:
    return without_credentials(uri)
