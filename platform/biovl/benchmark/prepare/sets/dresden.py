"""Dresden Surgical Anatomy Dataset: whether a structure is in view in a laparoscopic frame.

Frames in the folder of a structure are positive if their mask is not empty. Frames in other folders
are negative if ``weak_labels.csv``, which lists the visible structures of each frame, says so.

Source:
    Carstens et al. 2023, doi:10.1038/s41597-022-01719-2; the split by surgery is that of Kolbinger
    et al. 2023, doi:10.1097/JS9.0000000000000595.
"""

import functools
import posixpath
import re
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
from pydantic import NonNegativeFloat

from biovl.benchmark.class_names import normalize
from biovl.benchmark.datasets import SPLITS
from biovl.benchmark.prepare.labels import Labels, drawn
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.core.errors import SourceError
from biovl.images.decode import decode_rgb

STRUCTURES = (
    *("abdominal_wall", "colon", "inferior_mesenteric_artery", "intestinal_veins", "liver"),
    *("pancreas", "small_intestine", "spleen", "stomach", "ureter", "vesicular_glands"),
)
CLASSES = ("not in view", "in view")

_VAL = (3, 21, 26)
_TEST = (2, 7, 11, 13, 14, 18, 20, 32)
"""Surgeries of Kolbinger et al.; all others are train."""

_ALL = "multilabel"
_WEAK = "weak_labels.csv"
_FRAME = re.compile(r"image0*(\d+)\.png", re.IGNORECASE)
_NUMBER = re.compile(r"(?:image)?0*(\d+)(?:\.0*|\.png)?", re.IGNORECASE)
_VISIBLE = Labels({CLASSES[0]: ("0", "false", "no"), CLASSES[1]: ("1", "true", "yes")})

EMPTY_MASK = "frame of the structure's folder with an empty mask"
NO_MASK = "frame of the structure's folder without a mask"
NO_WEAK_LABEL = "frame without a weak label of the structure"
NOT_DRAWN = "frame without the structure that was not drawn"


def _about(structure: str) -> SetAbout:
    words = structure.replace("_", " ")
    return SetAbout(
        title=f"Dresden Surgical Anatomy Dataset: {words} in view or not",
        files=("DSAD.zip, or its folders", f"{structure}/NN/imageNN.png, maskNN.png, {_WEAK}"),
        get="springernature.figshare.com, article 21702600",
        size="some GB, 13,195 frames",
        licence="CC-BY-4.0",
        citation="Carstens et al. 2023, doi:10.1038/s41597-022-01719-2",
        differs="BIOMEDICA does not state how it made questions of the frames. Here frames with "
        "the structure are those of its folder, and as many without it are drawn from the other "
        "folders by their weak labels (reader.without, reader.seed); splits are by surgery.",
        settings={"structure": structure},
    )


SETS = {f"dresden_{name}": _about(name) for name in STRUCTURES}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader."""

    structure: str
    """The structure: the name of its folder."""
    without: NonNegativeFloat = 1.0
    """Frames without the structure for each frame with it, in each split; 0: all."""
    seed: int = 0
    """Seed of the draw of frames without the structure."""

    def __post_init__(self) -> None:
        if self.structure not in STRUCTURES:
            known = ", ".join(STRUCTURES)
            raise ValueError(f"structure: expected one of {known}, got {self.structure!r}")


@dataclass(frozen=True)
class _Frame:
    folder: str
    surgery: int
    number: int
    file: str
    """Name in the raw files."""

    @property
    def split(self) -> str:
        return "val" if self.surgery in _VAL else "test" if self.surgery in _TEST else "train"

    @property
    def id(self) -> str:
        return f"{self.folder}/{self.surgery:02}/{self.number:02}"


def read(config: Config, raw: RawFiles) -> RawSet:
    """Return the frames with the structure, and frames without it: see ``Config.without``.

    Raises:
        SourceError: If the structure's folder, its masks, or all weak labels are missing.
    """
    structure = config.structure
    frames, left_out = _frames(raw), Counter[str]()
    own = [one for one in frames if one.folder == structure]
    if not own:
        raise raw.missing(f"{structure}/NN/imageNN.png")
    shown = [one for one in own if _has_mask(raw, one, left_out)]
    if not shown:
        raise raw.missing(f"{structure}/NN/maskNN.png with a marked area")
    others = [one for one in frames if one.folder not in (structure, _ALL)]
    hidden = _hidden(raw, others, structure, left_out)
    if not hidden:
        raise raw.missing(f"{_WEAK} with frames of other folders without {structure}")
    splits: dict[str, list[Example]] = {}
    for split in SPLITS:
        present = [one for one in shown if one.split == split]
        absent = {one.id: one for one in hidden if one.split == split}
        count = max(1, round(config.without * len(present))) if config.without else len(absent)
        chosen = drawn(list(absent), count, config.seed) if present else []
        left_out[NOT_DRAWN] += len(absent) - len(chosen)
        splits[split] = [_example(raw, one, CLASSES[1]) for one in present]
        splits[split] += [_example(raw, absent[key], CLASSES[0]) for key in chosen]
    return RawSet(
        holds="classes",
        columns={"label": pa.string(), "group": pa.string()},
        splits=splits,
        classes=CLASSES,
        left_out=+left_out,
    )


def _frames(raw: RawFiles) -> list[_Frame]:
    """Return all frames, ``FOLDER/SURGERY/imageNN.png``, in the order of their names."""
    folders = {normalize(name): name for name in (*STRUCTURES, _ALL)}
    frames = []
    for name in raw.images():
        parts = name.split("/")
        match = _FRAME.fullmatch(parts[-1])
        if match is None or len(parts) < 3 or not parts[-2].isdigit():
            continue
        folder = folders.get(normalize(parts[-3]))
        if folder is not None:
            frames.append(_Frame(folder, int(parts[-2]), int(match[1]), name))
    return frames


def _has_mask(raw: RawFiles, frame: _Frame, left_out: Counter[str]) -> bool:
    """Return whether the frame's mask marks something."""
    folder, _, name = frame.file.rpartition("/")
    mask = f"{folder}/{re.sub('image', 'mask', name, flags=re.IGNORECASE)}"
    if mask not in raw:
        left_out[NO_MASK] += 1
        return False
    pixels = decode_rgb(raw.read(mask)).pixels
    if pixels is None or not pixels.any():
        left_out[EMPTY_MASK] += 1
        return False
    return True


def _hidden(
    raw: RawFiles, frames: list[_Frame], structure: str, left_out: Counter[str]
) -> list[_Frame]:
    """Return the frames whose weak label says that the structure is not visible."""
    of_folder: dict[str, list[_Frame]] = {}
    for one in frames:
        of_folder.setdefault(posixpath.dirname(one.file), []).append(one)
    hidden = list[_Frame]()
    for folder, inside in of_folder.items():
        name = f"{folder}/{_WEAK}"
        states = _weak_labels(raw, name, inside, structure) if name in raw else {}
        for one in inside:
            state = states.get(one.number)
            left_out[NO_WEAK_LABEL] += state is None
            if state == CLASSES[0]:
                hidden.append(one)
    return hidden


def _weak_labels(
    raw: RawFiles, name: str, frames: list[_Frame], structure: str
) -> dict[int, str | None]:
    """Return the state of a structure by frame number.

    A row is a frame and a column a structure, or the other way round. Without a column of frame
    numbers or file names, rows are the frames in the order of their numbers.

    Raises:
        SourceError: If the table does not name the structure, or rows and frames do not match.
    """
    table = raw.table(name, [])
    columns = list(table[0]) if table else []
    wanted = normalize(structure)
    column = next((one for one in columns if normalize(one) == wanted), None)
    if column is None and columns:
        # Structures are rows.
        row = next((one for one in table if normalize(one[columns[0]]) == wanted), None)
        if row is not None:
            cells = ((_NUMBER.fullmatch(key), value) for key, value in row.items())
            return {int(key[1]): _VISIBLE.named(value) for key, value in cells if key}
    if column is None:
        raise SourceError(f"{raw.folder}/{name} does not name {structure}, only {columns[:20]}")
    numbers = sorted(one.number for one in frames)
    stated = next(filter(None, (_frame_numbers(table, key, numbers) for key in columns)), None)
    if stated is None and len(table) != len(numbers):
        raise SourceError(
            f"{raw.folder}/{name} has {len(table)} rows without frame numbers, and the folder has "
            f"{len(numbers)} frames: they cannot be matched"
        )
    rows = zip(stated or numbers, table, strict=True)
    return {number: _VISIBLE.named(row[column]) for number, row in rows}


def _frame_numbers(table: list[dict[str, str]], column: str, frames: list[int]) -> list[int] | None:
    """Return the frame number of each row if a column holds them."""
    if normalize(column) in map(normalize, STRUCTURES):
        return None
    matches = [_NUMBER.fullmatch(row[column]) for row in table]
    numbers = [int(match[1]) for match in matches if match]
    is_unique = len(set(numbers)) == len(table)
    return numbers if is_unique and set(frames) <= set(numbers) else None


def _example(raw: RawFiles, frame: _Frame, label: str) -> Example:
    return Example(
        id=frame.id,
        path=f"{frame.id.replace('/', '_')}.png",
        read=functools.partial(raw.read, frame.file),
        values={"label": label, "group": f"surgery {frame.surgery:02}"},
    )
