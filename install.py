"""Install requirements.txt with pip, and show what is going on: ``make setup`` runs this.

pip itself either says nothing for minutes, or prints a thousand lines.
"""

import re
import subprocess
import sys
from pathlib import Path

EVERY = 20
"""Packages per line, if the output is not a terminal."""

_COLLECTING = re.compile(r"(?:Collecting|Processing|Requirement already satisfied:) (?:\S*/)?(\S+)")
_DOWNLOADING = re.compile(r"\s+Downloading (\S+)-\S+ \((\S+ [GM]B)\)")


def main() -> int:
    """Run pip with the arguments of this script; return its exit status."""
    total = len(Path("requirements.txt").read_text(encoding="utf-8").splitlines())
    show(f"installing {total} packages, about 7 GB on disk: some minutes", keep=True)
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--compile"]
    process = subprocess.Popen(
        [*pip, "--progress-bar", "off", *sys.argv[1:]], stdout=subprocess.PIPE, text=True
    )
    count = 0
    for line in process.stdout or ():
        if found := _COLLECTING.match(line):
            count = min(count + 1, total)
            show(f"{count} of {total}: {found[1]}", keep=count % EVERY == 0)
        elif found := _DOWNLOADING.match(line):
            show(f"{count} of {total}: downloads {found[1]}, {found[2]}", keep="GB" in found[2])
        elif line.startswith("Installing collected packages"):
            show("unpacking and compiling all of them: a minute or two", keep=True)
    status = process.wait()
    show("all packages are installed" if status == 0 else "pip failed", keep=True)
    return status


def show(text: str, *, keep: bool) -> None:
    """Show a line: on a terminal in place of the last one, else only if it is to be kept."""
    if sys.stdout.isatty():
        sys.stdout.write(f"\r{text[:78]}\033[K" + "\n" * keep)
    elif keep:
        sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
