"""Input and output counts of each step, with the reasons of dropped rows, and its warnings."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from biovl.core.artifacts import Manifest


@dataclass(frozen=True)
class Flow:
    """Number of rows that a step reads, keeps and drops, for one kind of rows."""

    what: str
    seen: int
    kept: int
    kept_are: str
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Dropped rows by reason; their sum is ``seen - kept``."""
    into: Mapping[str, int] = field(default_factory=dict)
    """Kept rows by destination, such as the split; empty if there is only one."""
    note: str = ""

    @property
    def line(self) -> str:
        """The counts as text, without the reasons."""
        split = ", ".join(f"{name} {count:,}" for name, count in self.into.items())
        ways = f" ({split})" if split else ""
        note = f"; {self.note}" if self.note else ""
        if self.seen == self.kept and not self.into:
            return f"{self.seen:,} {self.what}{note}"
        return f"{self.seen:,} {self.what}, {self.kept:,} {self.kept_are}{ways}{note}"


def flows(manifest: Manifest) -> list[Flow]:
    """Return the row counts of a published folder; empty for unknown kinds."""
    of = _OF_KIND.get(manifest.kind)
    return of(manifest.counts) if of else []


def warnings_by_step(steps: Iterable[tuple[str, Manifest]]) -> dict[str, list[str]]:
    """Return the warnings of published folders by step; steps without any are left out.

    A corpus repeats the warnings of its figures: they are listed once, under the first step.
    """
    found: dict[str, list[str]] = {}
    listed: set[str] = set()
    for step, manifest in steps:
        new = [warning for warning in manifest.warnings if warning not in listed]
        listed.update(new)
        if new:
            found[step] = new
    return found


def _figures(counts: Mapping[str, Any]) -> list[Flow]:
    result = []
    for what in ("articles", "figures"):
        about = counts[what]
        note = f"{counts['mentions']:,} paragraphs that cite them" if what == "figures" else ""
        flow = Flow(what, about["seen"], about["usable"], "usable", about["defects"], note=note)
        result.append(flow)
    return result


def _panels(counts: Mapping[str, Any]) -> list[Flow]:
    parents, panels = counts["parents"], counts["panels"]
    whole = {f"whole: {reason}": count for reason, count in counts["whole"].items()}
    into = {f"cut into {panels['seen']:,} panels": parents["split"], **whole}
    return [Flow("figures", parents["seen"], parents["seen"], "kept", into=into)]


def _columns(counts: Mapping[str, Any]) -> list[Flow]:
    if "labelled" in counts:
        labelled = sum(counts["labelled"].values())
        clusters = counts["clusters"]
        note = f"{clusters['labelled']:,} of {sum(clusters.values()):,} clusters have labels"
        return [
            Flow("images", counts["rows"], labelled, "labelled", counts["unlabelled"], note=note)
        ]
    if "annotated" in counts:
        left = {**counts["defects"], **counts.get("not_selected", {})}
        return [Flow("images", counts["rows"], counts["annotated"], "annotated", left)]
    return []


def _concepts(counts: Mapping[str, Any]) -> list[Flow]:
    note = f"in {counts['clusters']:,} clusters"
    left_out = counts["without_embedding"]
    return [Flow("images", counts["rows"], counts["clustered"], "clustered", left_out, note=note)]


def _corpus(counts: Mapping[str, Any]) -> list[Flow]:
    figures, pairs = counts["figures"], counts["pairs"]
    # The manifest stores them in alphabetical order.
    pairs = {split: pairs[split] for split in ("train", "val", "test") if split in pairs}
    return [Flow("figures", figures["seen"], figures["kept"], "pairs", counts["dropped"], pairs)]


def _model(counts: Mapping[str, Any]) -> list[Flow]:
    pairs = counts["pairs"]
    note = f"{pairs['seen']:,} seen in {counts['steps']:,} steps of {counts['epochs']:,} epochs"
    return [Flow("pairs to train on", pairs["train"], pairs["train"], "trained on", note=note)]


def _index(counts: Mapping[str, Any]) -> list[Flow]:
    note = f"{counts['reused']:,} taken over" if counts.get("reused") else ""
    return [
        Flow(
            "pairs", counts["pairs"], counts["rows"], "can be found", counts["left_out"], note=note
        )
    ]


def _report(counts: Mapping[str, Any]) -> list[Flow]:
    tasks, skipped = counts["tasks"], counts["skipped"]
    unreadable = counts["unreadable"]
    note = f"{unreadable:,} images cannot be read" if unreadable else ""
    dropped = {"skipped, see its table": skipped} if skipped else {}
    what = "benchmark" if tasks + skipped == 1 else "benchmarks"
    return [Flow(what, tasks + skipped, tasks, "answered", dropped, note=note)]


_OF_KIND: dict[str, Callable[[Mapping[str, Any]], list[Flow]]] = {
    "figures": _figures,
    "panels": _panels,
    "columns": _columns,
    "concepts": _concepts,
    "corpus": _corpus,
    "model": _model,
    "index": _index,
    "report": _report,
}
"""Functions by kind of folder."""
