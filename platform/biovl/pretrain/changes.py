"""Settings that may change when a run resumes, and the record of what changed at which step."""

from collections.abc import Callable, Mapping
from typing import Any

from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.pretrain.config import PretrainConfig, identity
from biovl.pretrain.schedule import Plan, learning_rate
from biovl.pretrain.scores import note_name, read_scores
from biovl.runtime.checkpoints import Checkpoints

_SETTINGS = "settings"
"""Name of the draft's note with the settings of the last start."""
_CHANGED = "changed"
"""Name of the draft's note with all changes."""

_BEGUN = "begun"


def changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings that differ: ``{"setting": …, "before": …, "after": …}``, by name."""
    old, new = configs.flat(before), configs.flat(after)
    return [
        {"setting": name, "before": old.get(name), "after": new.get(name)}
        for name in sorted(old.keys() | new.keys())
        if not configs.is_same(old.get(name), new.get(name))
    ]


def describe_changes(changes: list[dict[str, Any]]) -> str:
    """Return changes as text: ``epochs 3 -> 6, save.keep_last 2 -> 3``."""
    return ", ".join(f"{each['setting']} {each['before']} -> {each['after']}" for each in changes)


def may_resume(draft: Draft, config: PretrainConfig) -> bool:
    """Return whether a draft may resume although settings that define the run changed.

    What is published and how it is validated may change, and the run may become longer.
    """
    what, _ = identity(configs.to_plain(config))
    begun = (draft.read_note(_BEGUN) or {})["config"]
    before = configs.with_defaults(begun, what, configs.defaults(PretrainConfig))
    names = {each["setting"] for each in changed_settings(before, what)}
    return what["epochs"] >= before["epochs"] and all(
        name in ("epochs", "publish") or name.startswith("validation.") for name in names
    )


def read_settings(out: str) -> dict[str, Any] | None:
    """Return the settings with which a draft was last started; None if there is no draft.

    Drafts written by earlier versions of biovl contain only the settings that define the run.
    """
    draft = Draft(out)
    begun = draft.read_note(_BEGUN)
    settings: dict[str, Any] | None = draft.read_note(_SETTINGS)
    return settings or (begun and begun["config"])


def record_changes(
    draft: Draft,
    before: Mapping[str, Any] | None,
    config: PretrainConfig,
    plan_of: Callable[[int], Plan],
) -> list[str]:
    """Record in a draft the settings that changed since its last start, and return log lines.

    Args:
        draft: The draft of the run.
        before: Result of ``read_settings``, before the draft was resumed.
        config: Configuration of the run.
        plan_of: Returns the plan of the run for a number of epochs.
    """
    now = _recorded(config)
    is_complete = draft.read_note(_SETTINGS) is not None
    steps = Checkpoints(config.out).steps()
    draft.note(_SETTINGS, now)
    if before is None or not steps:
        return []
    after = now if is_complete else identity(configs.to_plain(config))[0]
    filled = configs.with_defaults(before, after, configs.defaults(PretrainConfig))
    changes = changed_settings(filled, after)
    if not changes:
        return []
    draft.note(_CHANGED, [*read_changes(draft), *({"step": steps[-1], **c} for c in changes)])
    if filled["validation"]["pairs"] != after["validation"]["pairs"]:
        _validate_again(draft, plan_of(config.epochs), steps)
    return [
        f"changed at step {steps[-1]:,}: {describe_changes(changes)}",
        *_longer(config, plan_of(filled["epochs"]), plan_of(config.epochs), steps[-1]),
    ]


def read_changes(draft: Draft) -> list[dict[str, Any]]:
    """Return all changes of the settings of a run, each with ``step``, ``before`` and ``after``.

    The step is that of the newest checkpoint when the command was started.
    """
    return draft.read_note(_CHANGED) or []


def _recorded(config: PretrainConfig) -> dict[str, Any]:
    plain = configs.to_plain(config)
    del plain["out"]
    # Their settings may contain passwords.
    plain["trackers"] = [each["name"] for each in plain["trackers"]]
    return plain


def _validate_again(draft: Draft, plan: Plan, steps: list[int]) -> None:
    """Delete the scores of all epochs that can be validated again."""
    for epoch in read_scores(draft):
        if plan.ends()[epoch] in steps:
            draft.delete_note(note_name(epoch))


def _longer(config: PretrainConfig, before: Plan, now: Plan, steps_done: int) -> list[str]:
    if before.steps == now.steps or steps_done == now.steps:
        return []
    rate = learning_rate(config.optim, now, now.place(steps_done))
    instead = "the run ended there before"
    if steps_done < before.steps:
        planned = learning_rate(config.optim, before, before.place(steps_done))
        if planned == rate:
            return [f"the run has {now.steps:,} steps; the next learning rate stays {rate:.3g}"]
        instead = f"with {len(before.epochs)} epochs it would be {planned:.3g}"
    return [
        f"optim.schedule={config.optim.schedule} is now over {len(now.epochs)} epochs: the next "
        f"learning rate is {rate:.3g}; {instead}"
    ]
