"""Reports of a chain: the dry run, the results, and the HTML summary."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from biovl.chain.links import Chain, Link
from biovl.chain.page.flow import flows, warnings_by_step
from biovl.chain.page.page import render
from biovl.chain.page.reading import Notes, read_notes, read_story
from biovl.core import config as configs
from biovl.core.artifacts import Draft, to_json
from biovl.core.folders import Folder


def plan(chain: Chain, links: Sequence[Link]) -> str:
    """Return every step of a chain with its settings and state, as text."""
    lines = []
    for link in links:
        recipe = chain.settings[link.step.name]["recipe"]
        lines.append(f"{link.step.name} {recipe}: {link.out}  [{link.state}]")
        lines += [f"  {line}" for line in link.reason.splitlines()]
        plain = yaml.safe_dump(
            configs.to_plain(link.config), default_flow_style=None, width=92, sort_keys=False
        )
        lines += [f"    {line}" for line in plain.splitlines()]
    states = ", ".join(f"{link.step.name} {link.state}" for link in links)
    return "\n".join([*lines, "", states, ""])


def note(chain: Chain, links: Sequence[Link], seconds: Mapping[str, float], **more: Any) -> str:
    """Save the notes of a chain, write the HTML summary, and return its path.

    Searches, the screenshot and the sentence about labels are kept from earlier calls unless they
    are passed. When a step has run they are dropped: they describe the previous output folders.

    Args:
        chain: The chain.
        links: The published steps.
        seconds: Durations of the steps that were run now; steps that are not in ``links`` failed.
        more: Other fields of ``Notes``.
    """
    folder = Folder(chain.folder)
    before = read_notes(chain.folder, f"story{chain.suffix}.json")
    spent = {step: before.interrupted.get(step, 0.0) + took for step, took in seconds.items()}
    published = {link.step.name for link in links}
    if seconds:
        more = {"searches": (), "screenshot": "", "labels": "", **more}
    notes = dataclasses.replace(
        before,
        recipe=chain.recipe,
        seconds={**before.seconds, **{step: spent[step] for step in spent.keys() & published}},
        interrupted={
            step: took
            for step, took in {**before.interrupted, **spent}.items()
            if step not in published
        },
        remaining=[step for step in chain.settings if step not in published],
        **more,
    )
    folder.write(f"story{chain.suffix}.json", to_json(dataclasses.asdict(notes)))
    story = read_story(chain.folder, {link.step.name: link.out for link in links}, notes)
    folder.write(f"summary{chain.suffix}.html", render(story).encode())
    # Remove the temporary files of atomic writes.
    Draft(chain.folder).clear()
    return f"{chain.folder}/summary{chain.suffix}.html"


def outcome(chain: Chain, links: Sequence[Link]) -> str:
    """Return the output folders with their counts and durations, as text."""
    notes = read_notes(chain.folder, f"story{chain.suffix}.json")
    width = max(len(link.out) for link in links) + 1
    lines = []
    for link in links:
        if link.manifest is None:
            continue
        took = _took(notes, link.step.name)
        counts = flows(link.manifest)
        first = counts[0].line if counts else link.manifest.kind
        lines.append(f"  {link.out + '/':<{width}}  {took:>7}  {first}")
        for flow in counts:
            if flow is not counts[0]:
                lines.append(f"  {'':<{width}}  {'':>7}  {flow.line}")
            for reason, count in sorted(flow.dropped.items(), key=lambda item: -item[1]):
                lines.append(f"  {'':<{width}}  {'':>7}    {count:>7,}  {reason}")
    lines += [f"  warning: {warning}" for warning in _warnings(links)]
    return "\n".join(lines) + "\n"


def summary(chain: Chain, links: Sequence[Link], page: str) -> str:
    """Return the counts and warnings of all steps as a line of JSON."""
    steps = {link.step.name: link.manifest.counts for link in links if link.manifest is not None}
    return json.dumps(
        {"out": chain.folder, "summary": page, "steps": steps, "warnings": _warnings(links)}
    )


def _warnings(links: Sequence[Link]) -> list[str]:
    """Return the warnings of all steps, each with the step that first gave it."""
    found = warnings_by_step(
        (link.step.name, link.manifest) for link in links if link.manifest is not None
    )
    return [f"{step}: {warning}" for step, warnings in found.items() for warning in warnings]


def _took(notes: Notes, step: str) -> str:
    seconds = notes.seconds.get(step)
    if seconds is None:
        return ""
    hours, rest = divmod(round(seconds), 3_600)
    minutes, left = divmod(rest, 60)
    if hours:
        return f"{hours} h {minutes:02}"
    return f"{minutes} min {left:02}" if minutes else f"{seconds:.0f} s"
