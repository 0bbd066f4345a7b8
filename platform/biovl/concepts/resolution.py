"""From votes to one label per cluster: which votes count, and what most of them say."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from biovl.concepts.agreement import FIELDS, answer, disagreement
from biovl.concepts.taxonomy import Taxonomy
from biovl.concepts.votes import Vote, checked, moment
from biovl.core.errors import ConfigError

PRACTICE = "practice"
SUPERSEDED = "superseded"
UNKNOWN_CLUSTER = "unknown cluster"
CLUSTER_CHANGED = "cluster changed"
CONTRADICTORY = "outside the taxonomy or contradictory"
NO_ROW = "row is no vote"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A vote, or a row of a file, that does not count."""

    kind: str
    """One of the few above, to count by."""
    reason: str
    """For whoever gave it."""
    vote: Vote | None = None
    line: int | None = None
    """Of the file, where the row is no vote."""


@dataclass(frozen=True, kw_only=True)
class Tie:
    """A question that the votes leave open, and how they are divided."""

    field: str
    """One of ``agreement.FIELDS``."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """What the votes for a cluster say. With a tie, what is tied is empty."""

    cluster_id: int
    key: str
    votes: tuple[Vote, ...]
    """Those that count, by reviewer."""
    panel_type: str | None
    panel_subtype: str | None
    global_concepts: tuple[str, ...]
    local_concepts: tuple[str, ...]
    ties: tuple[Tie, ...] = ()
    disagreement: Mapping[str, float] = field(default_factory=dict)
    """By field, in percent: see ``agreement.disagreement``."""

    @property
    def is_labelled(self) -> bool:
        """Whether its labels may be published: all of them, or none."""
        return not self.ties


def countable(
    votes: Iterable[Vote], taxonomy: Taxonomy, keys: Mapping[int, str] | None = None
) -> tuple[list[Vote], list[Refused]]:
    """Return the votes that count, names as the taxonomy writes them; and the others, with why.

    A vote does not count if it was given for practice; if its cluster is not there or has changed
    since; if ``checked`` refuses it; or if its reviewer gave a later one for the same cluster that
    does count (of two at the same moment the one that comes later here).

    Args:
        votes: In any order.
        taxonomy: The names they may use.
        keys: Of the clusters there are, by id; None: whatever clusters the votes name.
    """
    counted: dict[tuple[int, str], Vote] = {}
    refused: list[Refused] = []
    for vote in votes:
        if vote.practice:
            refused.append(Refused(kind=PRACTICE, reason="given for practice", vote=vote))
            continue
        if keys is not None and vote.cluster_id not in keys:
            reason = f"there is no cluster {vote.cluster_id}, only 0 to {max(keys, default=-1)}"
            refused.append(Refused(kind=UNKNOWN_CLUSTER, reason=reason, vote=vote))
            continue
        if keys is not None and vote.key != keys[vote.cluster_id]:
            reason = f"the cluster has changed since: its key is {keys[vote.cluster_id]} now"
            refused.append(Refused(kind=CLUSTER_CHANGED, reason=reason, vote=vote))
            continue
        try:
            good = checked(vote, taxonomy)
        except ConfigError as error:
            refused.append(Refused(kind=CONTRADICTORY, reason=str(error), vote=vote))
            continue
        place = good.cluster_id, good.reviewer.strip().casefold()
        before = counted.get(place)
        if before is not None:
            later = moment(good.created) >= moment(before.created)
            old, good = (before, good) if later else (good, before)
            reason = f"its reviewer voted again: {good.created or 'further down'}"
            refused.append(Refused(kind=SUPERSEDED, reason=reason, vote=old))
        counted[place] = good
    return [counted[place] for place in sorted(counted)], refused


def resolve(votes: Iterable[Vote], taxonomy: Taxonomy) -> list[Resolved]:
    """Return what the votes say, for every cluster that has one that counts, by id.

    * Panels: type and subtype are one answer; the one that more than half of the voters gave. Else
      a tie.
    * Global concepts: each that more than half of the voters named. A tie if there is none, or if
      exactly half named a further one.
    * Local concepts: the same; and none where more than half of the voters named none. Also a tie:
      one that more than half named, below global concepts that more than half did not.

    So two of three voters decide, and two of two. Three answers of three voters stay a tie until
    one of them votes again, or two more agree with one.

    Source:
        BIOMEDICA, arXiv 2501.07171, section 14.7: lower case without white space and dashes, then
        the majority vote of each field; ties are evaluated again (section 3.2). The paper does not
        say how several concepts of one voter count: here each is asked for alone.
    """
    counted, _ = countable(votes, taxonomy)
    groups = itertools.groupby(counted, key=lambda vote: vote.cluster_id)
    return [_resolved(tuple(group), taxonomy) for _, group in groups]


def _resolved(votes: tuple[Vote, ...], taxonomy: Taxonomy) -> Resolved:
    ties: list[Tie] = []
    panels = Counter((vote.panel_type, vote.panel_subtype) for vote in votes)
    (panel, most), *_ = panels.most_common(1)
    if 2 * most <= len(votes):
        panel = None, None  # type: ignore[assignment]
        described = {
            f"{kind} ({subtype})" if subtype else kind: count
            for (kind, subtype), count in panels.items()
        }
        ties.append(Tie(field="panel", reason=_divided(described, len(votes))))
    chosen: dict[str, tuple[str, ...]] = {}
    for name, order in (
        ("global_concepts", tuple(taxonomy.concepts)),
        ("local_concepts", taxonomy.local_concepts),
    ):
        chosen[name], tie = _concepts(name, [getattr(vote, name) for vote in votes], order)
        if tie is not None:
            ties.append(tie)
    above = set(chosen["global_concepts"])
    alone = [
        name for name in chosen["local_concepts"] if above.isdisjoint(taxonomy.globals_of(name))
    ]
    if above and alone:
        reason = f"most named {', '.join(alone)}, but not what it stands below"
        ties.append(Tie(field="local_concepts", reason=reason))
        chosen["local_concepts"] = ()
    return Resolved(
        cluster_id=votes[0].cluster_id,
        key=votes[0].key,
        votes=votes,
        panel_type=panel[0],
        panel_subtype=panel[1],
        global_concepts=chosen["global_concepts"],
        local_concepts=chosen["local_concepts"],
        ties=tuple(ties),
        disagreement={
            name: disagreement([answer(vote, name) for vote in votes]) for name in FIELDS
        },
    )


def _concepts(
    name: str, answers: Sequence[tuple[str, ...]], order: Sequence[str]
) -> tuple[tuple[str, ...], Tie | None]:
    """Return the concepts that more than half of the voters named, or none and the tie."""
    named = Counter(itertools.chain(*answers))
    voters = len(answers)
    winners = tuple(concept for concept in order if 2 * named[concept] > voters)
    is_half = any(2 * count == voters for count in named.values())
    most_named_none = 2 * sum(not concepts for concepts in answers) > voters
    if not is_half and (winners or most_named_none):
        return winners, None
    if not all(answers):
        named["(none)"] = sum(not concepts for concepts in answers)
    return (), Tie(field=name, reason=_divided(named, voters))


def _divided(counts: Mapping[str, int], voters: int) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name}: {count} of {voters}" for name, count in ordered)
