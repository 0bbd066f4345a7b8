"""Warnings about a valid corpus that may be unsuitable: small splits, omitted steps, caps."""

from collections.abc import Iterator, Mapping
from typing import Any

from biovl.assemble.config import AssembleConfig
from biovl.assemble.rules import not_retracted
from biovl.assemble.steps import TOO_MANY
from biovl.core.chance import half_width

RETRACTED = not_retracted().name

FEW_PAIRS = 100
"""Pairs of val or test below which scores are too uncertain to compare models: with 100 pairs, the
95 % interval of a recall of 50 % is 40 to 60 %."""

MANY_ARTICLES = 20
"""Articles from which a single licence group is suspicious: if three quarters of the articles had
one group, all of 20 would have it in 0.3 % of cases."""


def warnings_of(
    config: AssembleConfig, stats: Mapping[str, Any], pairs: Mapping[str, int]
) -> list[str]:
    """Return warnings: omitted steps, a target without effect, small splits, one licence group.

    Args:
        config: Settings of assemble.
        stats: Result of ``statistics.statistics``.
        pairs: Pairs by split.
    """
    return [
        *_not_applied(config, stats),
        *_no_cap(config, stats),
        *_small_splits(config, pairs),
        *_one_license_group(config, stats),
    ]


def _not_applied(config: AssembleConfig, stats: Mapping[str, Any]) -> Iterator[str]:
    found, images = stats["not_applied"], stats["corpus"]["images"]
    if config.retracted == "keep":
        retracted = found["default_steps"][RETRACTED] if found else 0
        yield (
            f"retracted articles are kept (retracted=keep): {retracted:,} of {images:,} pairs are "
            "known to be of one. To drop them: retracted=drop and rules+=not_retracted"
        )
    if found:
        reasons = [f"{reason}: {n:,}" for reason, n in found["default_steps"].items() if n]
        yield (
            f"{found['any_default_step']:,} of {images:,} pairs are kept that the recipe default "
            f"would drop ({'; '.join(reasons) or 'none'})"
        )
        for split, count in found.get("also_in_train", {}).items():
            if count:
                yield (
                    f"{count:,} of {stats['splits'][split]['pairs']:,} images of {split} are also "
                    "in train, as the same file or a near duplicate: retrieval on it is too easy"
                )


def _no_cap(config: AssembleConfig, stats: Mapping[str, Any]) -> Iterator[str]:
    target, images = config.balance.target, stats["corpus"]["images"]
    if target is not None and not any(reason.startswith(TOO_MANY) for reason in stats["dropped"]):
        yield (
            f"no label is capped: balance.target={target:,} is not below the {images:,} pairs. "
            "Set a smaller target, or balance.cap"
        )


def _small_splits(config: AssembleConfig, pairs: Mapping[str, int]) -> Iterator[str]:
    shares = {"val": config.split.val_permyriad, "test": config.split.test_permyriad}
    for split, share in shares.items():
        count = pairs[split]
        if share and count < FEW_PAIRS:
            effect = (
                f"scores on it are uncertain by up to {100 * half_width(count):.0f} points"
                if count > 1
                else "no model can be scored on it"
            )
            yield (
                f"{split} has {count} pair{'s' * (count != 1)}: {effect}. split.{split}_permyriad "
                "and split.least_articles decide its size"
            )
    if pairs["train"] < 2:
        yield f"train has {pairs['train']} pair{'s' * (pairs['train'] != 1)}: nothing can be learnt"


def _one_license_group(config: AssembleConfig, stats: Mapping[str, Any]) -> Iterator[str]:
    groups = stats["license_groups"]
    articles = stats["corpus"]["articles"]
    is_requested = any(rule.name == "license_groups" for rule in config.rules)
    if len(groups) == 1 and articles >= MANY_ARTICLES and not is_requested:
        yield (
            f"all {stats['corpus']['images']:,} pairs of {articles:,} articles are of one licence "
            f"group, {groups[0]['license_group']}, though no rule selects it: check that the "
            "source states a licence for each article"
        )
