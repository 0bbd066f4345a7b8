"""Settings of prepare: the data set, its raw files, and where it is published."""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import PositiveInt

from biovl.benchmark.prepare.sets import SetAbout, known_sets
from biovl.core.config import REQUIRED, Recipe, is_unfinished
from biovl.core.plugins import Plugin


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Settings of the job: which data set is read from where."""

    raw: str
    """Local folder with the files as distributed, unpacked or not; ``--list`` names them."""
    out: str
    """The folder to publish, local or ``s3://``. Benchmark finds it by its name:
    ``DATA_ROOT/pcam``."""
    name: str
    """Name of the data set; set by the recipe."""
    reader: Plugin
    """Reader of the raw files, and its settings; set by the recipe. ``reader.SETTING=…`` changes
    one."""
    threads: PositiveInt = 8
    """Threads that decode and convert images."""
    part_mb: PositiveInt = 400
    """Size of a Parquet file in MB, approximately."""

    def __post_init__(self) -> None:
        if is_unfinished(self):
            return
        if self.name not in known_sets():
            raise ValueError(f"name: there is no data set called {self.name!r}")


def _recipe(name: str, reader: str, about: SetAbout) -> Recipe[PrepareConfig]:
    def recipe() -> PrepareConfig:
        return PrepareConfig(
            raw=REQUIRED, out=REQUIRED, name=name, reader=Plugin(reader, about.settings)
        )

    recipe.__doc__ = f"{about.title} (needs raw, out; {about.size}; {about.licence})"
    return recipe


RECIPES: dict[str, Callable[[], PrepareConfig]] = {
    name: _recipe(name, reader, about) for name, (reader, about) in sorted(known_sets().items())
}


def listing() -> str:
    """Return a text with all data sets: files, source, licence, and the papers' counts."""
    lines = [f"{len(RECIPES)} data sets", ""]
    for name, (_, about) in sorted(known_sets().items()):
        lines += [f"{name}: {about.title}", f"    raw: {', '.join(about.files)}"]
        lines += [f"    from: {about.get} ({about.size})", f"    licence: {about.licence}"]
        lines += [f"    cite: {about.citation}"]
        for paper, counts in about.papers.items():
            shown = ", ".join(f"{split} {count:,}" for split, count in counts.items())
            lines.append(f"    {paper}: {shown}")
        lines += [f"    differs: {about.differs}"] * bool(about.differs)
    return "\n".join(lines) + "\n"
