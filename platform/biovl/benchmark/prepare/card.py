"""The dataset card of a prepared data set: licence, source, citation, counts."""

from biovl.core import markdown
from biovl.core.artifacts import Manifest

_LICENCES = ("cc0-1.0", "cc-by-4.0", "cc-by-nc-4.0", "cc-by-sa-4.0", "mit")
"""Licences by their names on the Hugging Face hub."""


def card(manifest: Manifest) -> str:
    """Return the card as Markdown, with metadata that the library datasets reads."""
    notes, splits = manifest.notes, [name.partition("-")[0] for name in manifest.files]
    splits = list(dict.fromkeys(splits))
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    for split in splits:
        named = "validation" if split == "val" else split
        lines += [f"  - split: {named}", f"    path: {split}-*.parquet"]
    licence = str(notes["licence"]).lower()
    lines += [f"license: {licence if licence in _LICENCES else 'other'}"]
    lines += ["---", "", f"# {notes['title']}", ""]
    lines += [f"Prepared by {manifest.code} from the files of {notes['source']}.", ""]
    lines += [f"* Licence: {notes['licence']}", f"* Cite: {notes['citation']}"]
    lines += [f"* Differs from the papers: {notes['differs']}"] * bool(notes["differs"])
    papers = notes["papers"]
    rows = [
        [split, manifest.counts.get(split, 0), *(counts.get(split) for counts in papers.values())]
        for split in dict.fromkeys([*splits, *(s for counts in papers.values() for s in counts)])
    ]
    lines += ["", markdown.table(["split", "rows", *papers], rows)]
    if notes["holds"] == "classes":
        of = notes["by_class"]
        classes = [
            [name, *(of[split].get(name, 0) for split in splits)] for name in notes["classes"]
        ]
        lines += ["", markdown.table(["class", *splits], classes)]
    if manifest.counts["left_out"]:
        left_out = [[count, reason] for reason, count in manifest.counts["left_out"].items()]
        lines += ["", "Left out:", "", markdown.table(["rows", "reason"], left_out)]
    if manifest.warnings:
        lines += ["", "Warnings:", "", *(f"* {warning}" for warning in manifest.warnings)]
    return "\n".join(lines) + "\n"
