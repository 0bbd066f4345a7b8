"""How many of the panels that real sentences cite are found, and how many of those found are cited.

python benchmarks/compound_citances.py --shared DIR

A panel is right if its figure, its kind and its label are; a figure cited as a whole counts as one
panel. Beside it stands how often everything in a sentence is right, and a plain pattern as a
baseline: a number with the letters glued to it, as most pipelines do it.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from biovl.articles.citances.extraction import references

Cited = frozenset[tuple[str, str, str]]
"""Kind, figure and panel; the panel is empty for the figure as a whole."""

_PLAIN = re.compile(r"Fig(?:ure)?s?\.? ?(S?\d+)([A-Za-z]?)")


def cited(figures: Iterable[tuple[str, str, Iterable[str]]]) -> Cited:
    """Return the panels of references, given as kind, figure and panels."""
    return frozenset(
        (kind, figure, panel)
        for kind, figure, panels in figures
        for panel in (list(panels) or [""])
    )


def ours(sentence: str) -> Cited:
    """Return the panels that the grammar finds in a sentence."""
    return cited((found.kind, found.figure, found.panels) for found in references(sentence))


def plain(sentence: str) -> Cited:
    """Return the panels that a plain pattern finds."""
    return cited(
        ("supplementary" if match[1].startswith("S") else "main", match[1], match[2])
        for match in _PLAIN.finditer(sentence)
    )


def measured(cases: list[dict[str, object]], find: Callable[[str], Cited]) -> dict[str, float]:
    """Return precision, recall and F1 over all panels, and the share of sentences all right."""
    right = found_in_all = cited_in_all = exact = 0
    for case in cases:
        found, gold = find(str(case["sentence"])), _gold(case)
        right += len(found & gold)
        found_in_all += len(found)
        cited_in_all += len(gold)
        exact += found == gold
    return {
        "precision": right / max(found_in_all, 1),
        "recall": right / max(cited_in_all, 1),
        "f1": 2 * right / max(found_in_all + cited_in_all, 1),
        "exact": exact / max(len(cases), 1),
    }


def read_cases(shared: Path) -> list[dict[str, object]]:
    """Return the real sentences with what they cite."""
    lines = (shared / "cases" / "citances.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def scores(shared: Path) -> dict[str, dict[str, float]]:
    """Return the scores on the real sentences by method."""
    cases = read_cases(shared)
    return {"grammar": measured(cases, ours), "plain pattern": measured(cases, plain)}


def _gold(case: dict[str, object]) -> Cited:
    refs = case["refs"]
    if not isinstance(refs, list):
        raise TypeError(f"refs must be a list, got {type(refs).__name__}")
    return cited((ref["kind"], ref["figure"], ref["panels"]) for ref in refs)


def main() -> None:
    """Print the table and the sentences that are not all right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    shared = parser.parse_args().shared
    print("| method | precision | recall | panel F1 | sentence exact |\n|---|---|---|---|---|")
    for method, values in scores(shared).items():
        print(f"| {method} | " + " | ".join(f"{value:.3f}" for value in values.values()) + " |")
    for case in read_cases(shared):
        sentence = str(case["sentence"])
        if ours(sentence) != _gold(case):
            print(f"\n{sentence}\n  found {sorted(ours(sentence))}\n  cited {sorted(_gold(case))}")


if __name__ == "__main__":
    main()
