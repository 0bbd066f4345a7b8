"""DeepEyeNet: JSON files of retinal images with keywords and a clinical description.

    DeepEyeNet_train.json  DeepEyeNet_valid.json  DeepEyeNet_test.json
    eyenet0420/train_set/group41-177.jpg …

The JSON is a list of objects with one image (or several) as key. The text of an image is its
keywords and its description on two lines, as in Open-PMC's retrieval; both are columns as well.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from biovl.benchmark.prepare.described import NO_IMAGE, Described, NamedImages, read_json
from biovl.benchmark.prepare.raw_files import RawFiles
from biovl.benchmark.prepare.sets import Example, RawSet, SetAbout
from biovl.core.errors import SourceError

SETS = {
    "deepeyenet": SetAbout(
        title="DeepEyeNet: retinal images with keywords and descriptions",
        files=("DeepEyeNet_train.json, DeepEyeNet_valid.json, DeepEyeNet_test.json", "eyenet0420/"),
        get="https://github.com/Jhhuangkay/DeepOpht-Medical-Report-Generation-for-Retinal-Images-"
        "via-Deep-Models-and-Visual-Explanation (by e-mail, after signing its terms)",
        size="about 2 GB",
        licence="terms of use of DeepEyeNet: do not redistribute",
        citation="Huang et al. 2021, DeepOpht: medical report generation for retinal images via "
        "deep models and visual explanation, WACV 2021",
        papers={"DeepOpht (60, 20, 20 %)": {"train": 9_425, "val": 3_142, "test": 3_142}},
        differs="text is keywords and description, as in Open-PMC; many images share one",
    ),
}

NO_TEXT = "neither keywords nor description"
REPEATED = "image described before in the same split"

_FILES = {
    "train": ("DeepEyeNet_train.json",),
    "val": ("DeepEyeNet_valid.json", "DeepEyeNet_val.json"),
    "test": ("DeepEyeNet_test.json",),
}
_KEYWORDS, _DESCRIPTION = "keywords", "clinical-description"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the reader: none."""


def build(config: Config) -> "DeepEyeNet":
    """Return the reader of DeepEyeNet."""
    return DeepEyeNet()


class DeepEyeNet:
    """Reads images, keywords and descriptions of DeepEyeNet."""

    def open(self, raw: RawFiles) -> RawSet:
        """Return the images by split; see ``SetReader``."""
        images, left_out, warnings = NamedImages(raw), Counter[str](), list[str]()
        splits = {}
        for split, names in _FILES.items():
            name = raw.required(*names)
            value, more = read_json(raw, name)
            warnings += more
            rows: dict[str, tuple[str, str, str]] = {}
            for image, keywords, description in _described(raw, name, value):
                file = images.find(image)
                reason = NO_IMAGE if file is None else None
                reason = reason or (None if keywords or description else NO_TEXT)
                reason = reason or (REPEATED if image in rows else None)
                if reason is None and file is not None:
                    rows[image] = file, keywords, description
                else:
                    left_out[str(reason)] += 1
            if rows:
                splits[split] = Described(list(rows.items()), partial(_example, raw))
        warnings += images.warnings(SETS["deepeyenet"].get)
        if not splits:
            raise SourceError(
                f"{raw.folder} has no image with a text: {dict(left_out)}. {warnings}"
            )
        return RawSet(
            holds="pairs",
            columns={name: pa.string() for name in ("text", "keywords", "clinical_description")},
            splits=splits,
            left_out=dict(sorted(left_out.items())),
            warnings=warnings,
        )


def _described(raw: RawFiles, name: str, value: Any) -> list[tuple[str, str, str]]:
    """Return image, keywords and description of each entry."""
    entries = value if isinstance(value, list) else [value]
    rows = []
    for entry in entries:
        for image, about in entry.items() if isinstance(entry, dict) else [("", None)]:
            if not isinstance(about, dict):
                raise SourceError(
                    f"{raw.folder}/{name}: expected images with {_KEYWORDS} and {_DESCRIPTION}, "
                    f"found {type(about).__name__} at {str(image)[:80]!r}"
                )
            texts = {str(key).lower(): _text(text) for key, text in about.items()}
            rows.append((str(image), texts.get(_KEYWORDS, ""), texts.get(_DESCRIPTION, "")))
    return rows


def _text(value: Any) -> str:
    """Return keywords, which may be a list, or a description, with single spaces."""
    joined = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
    return " ".join(joined.split())


def _example(raw: RawFiles, row: tuple[str, tuple[str, str, str]]) -> Example:
    image, (file, keywords, description) = row
    values: Mapping[str, Any] = {
        "text": "\n".join(text for text in (keywords, description) if text),
        "keywords": keywords or None,
        "clinical_description": description or None,
    }
    return Example(id=image, path=image, read=partial(raw.read, file), values=values)
