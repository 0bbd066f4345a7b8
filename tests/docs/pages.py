"""Pages and their fenced blocks, with what a comment right above a block says of it.

<!-- needs: cloud -->            (or gpu, network) its commands are looked at, and not run
<!-- file: PATH -->              a whole file of an example
<!-- after: PATH: LINE -->       lines to be put into a file, after the one that reads LINE
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCED = re.compile(
    r"(?:^<!-- (?P<word>needs|file|after): (?P<said>.*?) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(
    r"^(?:\$ )?(?:biovl|python|ray|serve|make|curl|pip|kubectl|docker) \S", re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: str
    """``README.md`` or ``docs/….md``."""
    line: int
    """Of the page, counted from 1: where its text begins."""
    language: str
    text: str
    word: str | None
    """needs, file or after: what the comment above says."""
    said: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def needs(self) -> str | None:
        return self.said if self.word == "needs" else None

    @property
    def has_commands(self) -> bool:
        return bool(_COMMAND.search(self.text))

    def commands(self) -> list[str]:
        """Return its commands: continued lines as one, what is fed to a command with it."""
        found: list[str] = []
        lines = iter(self.text.replace("\\\n", " ").splitlines())
        for line in lines:
            if not line.strip() or line.startswith("#"):
                continue
            fed = re.search(r"<<'?(\w+)'?", line)
            whole = [line]
            while fed and whole[-1] != fed[1]:
                whole.append(next(lines))
            found.append("\n".join(whole))
        return found


def pages() -> list[str]:
    """Return all pages, the README first."""
    return ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = (ROOT / page).read_text()
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start("text")) + 1,
            language=found["language"],
            text=found["text"],
            word=found["word"],
            said=found["said"] or "",
        )
        for found in _FENCED.finditer(text)
    ]


def words(command: str) -> list[str]:
    """Return the words of a command as a shell would, without its comment."""
    return shlex.split(command, comments=True)
