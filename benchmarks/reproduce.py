"""Run every table of the papers in the size small, one after the other, and write what came out.

python benchmarks/reproduce.py run FOLDER [TABLE …]     minutes per table on two cores
python benchmarks/reproduce.py docs                     the list of tables in docs/reproduce.md
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from biovl.chain.reproduce.graph import build, read_settings
from biovl.chain.reproduce.hours import costs
from biovl.chain.reproduce.papers import Papers, read_papers
from biovl.core import markdown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reproduce.md"
TABLES = re.compile(r"(<!-- tables: .*? -->\n).*?(<!-- end of tables -->)", re.DOTALL)


def main() -> None:
    """Run the command line."""
    match sys.argv[1:]:
        case ["docs"]:
            PAGE.write_text(page())
        case ["run", folder, *names]:
            run(folder, names or list(read_papers().tables))
        case _:
            sys.exit(__doc__)


def page() -> str:
    """Return the page with the list of tables as it is now."""
    listed = listing(read_papers())
    return TABLES.sub(lambda found: f"{found[1]}{listed}\n{found[2]}", PAGE.read_text())


def listing(papers: Papers) -> str:
    """Return the list of tables with their hours, as Markdown."""
    settings = read_settings({"folder": "reproduced"}, papers)
    of_steps = costs(build(papers, papers.tables.values(), settings), papers)
    rows = []
    for name, table in papers.tables.items():
        graph = build(papers, [table], settings)
        hours = sum(of_steps[step.name].hours for step in graph.steps if step.name in of_steps)
        trained = sum(entry.job == "pretrain" for entry in graph.entries.values())
        # Benchmarks are in no table's hours.
        jobs = (step for step, entry in graph.entries.items() if entry.job != "benchmark")
        without = [step for step in jobs if step not in of_steps]
        rows.append(
            [
                f"`{name}`",
                f"{papers.papers[table.paper].partition(' (')[0]}, {table.where}: {table.title}",
                trained or "",
                f"{hours:,.0f}" if hours else "",
                ", ".join(without),
                table.equal,
            ]
        )
    heads = ["table", "in the paper", "models trained", "hours", "without", "equal protocol"]
    return markdown.table(heads, rows)


def run(folder: str, names: list[str]) -> None:
    """Make tables in one folder, each by a command of its own; print a line for each."""
    for name in names:
        started = time.monotonic()
        command = [sys.executable, "-m", "biovl", "reproduce", name]
        settings = [f"folder={folder}", "size=small"]
        done = subprocess.run(
            [*command, *(part for setting in settings for part in ("--set", setting))],
            capture_output=True,
            text=True,
            check=False,
        )
        last = (done.stdout.splitlines() or ["{}"])[-1]
        summary = json.loads(last) if last.startswith("{") else {}
        found = summary.get("tables", {}).get(name, {})
        print(
            f"{name}: exit {done.returncode}, {time.monotonic() - started:.0f} s, "
            f"{found.get('ours')} of {found.get('cells')} numbers, "
            f"failed {summary.get('failed', done.stderr[-500:])}",
            flush=True,
        )


if __name__ == "__main__":
    main()
