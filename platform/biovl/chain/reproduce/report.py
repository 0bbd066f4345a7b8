"""Tables as text, Markdown and JSON; the list of tables that a run makes; the dry run."""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from biovl.chain.links import Link
from biovl.chain.reproduce.cells import Cell
from biovl.chain.reproduce.graph import Graph
from biovl.chain.reproduce.job import Outcome
from biovl.chain.reproduce.papers import Papers, Table
from biovl.core import markdown
from biovl.core.artifacts import Draft, to_json
from biovl.core.folders import Folder
from biovl.plan.steps import Cost

SYNTHETIC = (
    "SYNTHETIC: size=small. Drawn images and synthetic articles stand in for the data, and the "
    "models train for seconds: our numbers say that every step runs, and nothing else."
)
DIFFERENCES = "docs/differences.md"
_PREPARED = re.compile(r"biovl prepare (\S+) --set")
_HEADS = ("row", "score", "paper", "ours", "95 % interval", "equal protocol?")


def write(name: str, table: Table, papers: Papers, cells: Sequence[Cell], graph: Graph) -> str:
    """Write a table as text, Markdown and JSON to ``results/``, and return the text."""
    folder = Folder(f"{graph.chain.folder}/results{graph.chain.suffix}")
    table = dataclasses.replace(table, note=_with_changes(table.note, graph))
    text = as_text(table, papers, cells, is_small=graph.is_small)
    folder.write(f"{name}.txt", text.encode())
    folder.write(f"{name}.md", as_markdown(table, papers, cells, is_small=graph.is_small).encode())
    folder.write(f"{name}.json", to_json(as_json(name, table, papers, cells, graph)))
    # Remove the temporary files of atomic writes.
    Draft(folder.uri).clear()
    return text


def _with_changes(note: str, graph: Graph) -> str:
    """Return the note of a table, with the settings that the command was given."""
    given = ", ".join(f"{name}={value}" for name, value in graph.changed.items())
    return " ".join(filter(None, (note, given and f"Made with settings of yours: {given}.")))


def as_json(
    name: str, table: Table, papers: Papers, cells: Sequence[Cell], graph: Graph
) -> dict[str, Any]:
    """Return a table as plain JSON."""
    return {
        "table": name,
        "title": table.title,
        "paper": papers.papers[table.paper],
        "where": table.where,
        "synthetic": graph.is_small,
        "note": table.note,
        "cells": [dataclasses.asdict(cell) for cell in cells],
    }


def as_markdown(table: Table, papers: Papers, cells: Sequence[Cell], *, is_small: bool) -> str:
    """Return a table as Markdown."""
    parts = [f"# {table.title}", f"{papers.papers[table.paper]}, {table.where}."]
    if is_small:
        parts.append(f"**{SYNTHETIC}**")
    parts.append(markdown.table(list(_HEADS), _rows(cells)))
    parts += [f"* {line}" for line in _notes(table, cells)]
    return "\n\n".join(parts) + "\n"


def as_text(table: Table, papers: Papers, cells: Sequence[Cell], *, is_small: bool) -> str:
    """Return a table as text with aligned columns."""
    lines = [f"{table.title} ({papers.papers[table.paper]}, {table.where})"]
    if is_small:
        lines.append(SYNTHETIC)
    rows = markdown.plain_table([_HEADS, *_rows(cells)], range(len(_HEADS)))
    lines += [row.rstrip() for row in rows]
    lines += [f"  {line}" for line in _notes(table, cells)]
    return "\n".join(lines) + "\n"


def _rows(cells: Sequence[Cell]) -> list[list[str]]:
    return [
        [
            cell.row,
            cell.column,
            "not printed" if cell.paper is None else number(cell.paper, cell.unit),
            "–" if cell.ours is None else number(cell.ours, cell.unit) + _of(cell),
            _interval(cell),
            cell.equal if cell.ours is not None else "no number",
        ]
        for cell in cells
    ]


def _of(cell: Cell) -> str:
    return f" ({cell.of})" if cell.of else ""


def _interval(cell: Cell) -> str:
    if cell.low is None or cell.high is None:
        return ""
    return f"{number(cell.low, cell.unit)}–{number(cell.high, cell.unit)}"


def number(value: float, unit: str) -> str:
    """Return a number as text, with the number of decimals that the papers use."""
    if unit == "%":
        return f"{value:.2f}"
    if not math.isfinite(value):
        return str(value)
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.4f}" if abs(value) < 10 else f"{value:,.2f}"


def _notes(table: Table, cells: Sequence[Cell]) -> list[str]:
    """Return the remarks of a table and of its cells, and what is missing, each once."""
    lines = [f"Protocol: {table.note}"] if table.note else []
    lines.append(f"Differences to the papers are listed in {DIFFERENCES}.")
    by_note: dict[str, list[str]] = {}
    for cell in cells:
        for line in cell.protocol:
            # Of the data set, and so of a column.
            by_note.setdefault(line, [])
            if cell.column not in by_note[line]:
                by_note[line].append(cell.column)
        for note in filter(
            None, (cell.note, cell.missing and f"no number of ours: {cell.missing}")
        ):
            by_note.setdefault(note, []).append(f"{cell.row}, {cell.column}")
    for note, where in by_note.items():
        more = f" and {len(where) - 2} more" if len(where) > 2 else ""
        lines.append(f"{'; '.join(where[:2])}{more}: {note}")
    return lines


def summary(tables: Mapping[str, Sequence[Cell]], graph: Graph, outcome: Outcome) -> dict[str, Any]:
    """Return the data of the command's last line of output, JSON-serialisable."""
    return {
        "out": f"{graph.chain.folder}/results{graph.chain.suffix}",
        "kind": "results",
        "synthetic": graph.is_small,
        "tables": {
            name: {
                "cells": len(cells),
                "ours": sum(cell.ours is not None for cell in cells),
            }
            for name, cells in tables.items()
        },
        "steps": len(graph.steps),
        "failed": outcome.failed,
        "missing": outcome.missing,
        "warnings": [SYNTHETIC] if graph.is_small else [],
    }


def listing(papers: Papers, graphs: Mapping[str, Graph]) -> str:
    """Return all tables with the inputs they need, and whether these are available, as text."""
    lines = []
    for key, title in papers.papers.items():
        lines += [title, ""]
        for name, table in papers.tables.items():
            if table.paper != key:
                continue
            graph = graphs[name]
            lines.append(f"  {name}: {table.title} ({table.where})")
            lines.append(f"      {_made_by(graph)}; equal protocol: {table.equal}")
            data, others = _needs(graph)
            if data:
                lines.append(f"      needs data: {', '.join(data)} (biovl prepare --list)")
            lines += [f"      needs: {reason}" for reason in others]
            if graph.steps and not graph.missing:
                lines.append("      all that you must provide is there")
            names = _by_name(graph)
            if names:
                lines.append(f"      downloads by name: {', '.join(names)}")
        lines.append("")
    return "\n".join(lines)


def _needs(graph: Graph) -> tuple[list[str], list[str]]:
    """Return the data sets to prepare, by name, and what else has to be provided, in words."""
    reasons = list(dict.fromkeys(graph.missing.values()))
    names = [_PREPARED.search(reason) for reason in reasons]
    data = [match[1] for match in names if match]
    return data, [reason for reason, match in zip(reasons, names, strict=True) if not match]


def _made_by(graph: Graph) -> str:
    counts = Counter(entry.job for entry in graph.entries.values())
    return ", ".join(f"{count} x {job}" for job, count in counts.items()) or "no steps"


def _by_name(graph: Graph) -> list[str]:
    """Return the names of the pretrained models that steps would download."""
    return sorted(
        {uri for uri in graph.given.values() if uri.startswith("hf-hub:") or _is_tag(uri)}
    )


def _weights(links: Sequence[Link]) -> set[str]:
    """Return the names of weights that steps begin with."""
    found = set()
    for link in links:
        if link.state in ("published", "unchecked"):
            continue
        model = getattr(getattr(link.config, "model", None), "settings", {})
        named = [model.get(part, "") for part in ("image_weights", "text_weights")]
        if model.get("weights"):
            named.append(f"{model.get('architecture', '')}/{model['weights']}")
        named.append(str(getattr(link.config, "weights", "")))
        found |= {str(name) for name in named if _is_tag(str(name))}
    return found


def _is_tag(uri: str) -> bool:
    return "/" in uri and "://" not in uri and not uri.startswith(("/", ".", "~", "local-dir:"))


def plan(
    graph: Graph, links: Sequence[Link], costs: Mapping[str, Cost], failing: Mapping[str, str]
) -> str:
    """Return the steps with state and hours, and what the user has to provide."""
    states = {found.step.name: found for found in links}
    hours, shown = 0.0, Counter[tuple[str, ...]]()
    without = list[str]()
    for step in graph.steps:
        found = states.get(step.name)
        state: str = "waits" if found is None else found.state
        if step.name in graph.missing:
            state = "needs data"
        if step.name in failing:
            state = "would fail"
        job, recipe = graph.entries[step.name].job, graph.chain.settings[step.name]["recipe"]
        cost = costs.get(step.name)
        took = ""
        if state not in ("published", "unchecked"):
            if cost is None:
                without.append("reports" if job == "benchmark" else step.name)
            else:
                hours += cost.hours
                took = f"  {cost.hours:,.1f} h on {cost.machines}"
        # Reports of one model on several data sets are one line.
        folder = step.folder.partition("-")[0]
        shown[job, recipe, folder, state, took] += 1
    lines = ["steps:"]
    for (job, recipe, folder, state, took), count in shown.items():
        several = f" ({count} data sets)" if count > 1 else ""
        lines.append(f"  {job} {recipe}: {folder}{several}  [{state}]{took}")
    if hours:
        left_out = ", ".join(dict.fromkeys(without))
        more = f"; without: {left_out}" if without else ""
        lines += ["", f"about {hours:,.0f} hours for what is to do, by biovl plan{more}"]
    if graph.missing:
        waiting = Counter(graph.missing.values())
        lines += ["", "to be provided:"]
        lines += [f"  {reason} ({count} steps wait)" for reason, count in waiting.items()]
    if failing:
        lines += ["", "would fail:", *(f"  {name}: {reason}" for name, reason in failing.items())]
    names = sorted({*_by_name(graph), *_weights(links)} - {""})
    if names:
        lines += ["", "downloaded by name when they are needed (a setting may name a folder):"]
        lines += [f"  {name}" for name in names]
    return "\n".join(lines) + "\n"
