"""Match class names of data, papers and settings by spelling, never by position.

Class folders are read in alphabetical order, but papers and users list classes in other orders.
Names match if they are equal except for case, underscores, hyphens, spaces or a leading number
(``0_normal``), or if the caller lists them as other spellings of a class. An exact match takes
precedence. A name that matches no class is an error.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from biovl.core.errors import ConfigError

# Separators count only between letters and digits: "ER-" and "ER+" are two classes.
_SEPARATORS = re.compile(r"(?<=[^\W_])[\s_\-\u2010-\u2015]+(?=[^\W_])")
_LEADING_NUMBER = re.compile(r"^\d+[\s_.\-]+(?=\D)")


def normalize(name: str) -> str:
    """Return a name without case and separators: ``Lung_Opacity`` and ``lung opacity`` match."""
    plain = unicodedata.normalize("NFKC", name).casefold().strip().strip("_")
    return _SEPARATORS.sub("", plain)


def match(
    names: Sequence[str], known: Mapping[str, Iterable[str]], *, where: str, whose: str
) -> list[str]:
    """Return the known class that each name refers to, in the order of the names.

    Args:
        names: Classes of the data.
        known: Other spellings by class. No spelling belongs to two classes.
        where: Name of the data, for the error message.
        whose: Origin of the known classes, for the error message.

    Raises:
        ConfigError: If a name is unknown, two names refer to the same class, or a class has no
            name.
    """
    by_spelling: dict[str, str] = {}
    for one, others in known.items():
        for spelling in (one, *others):
            by_spelling.setdefault(normalize(spelling), one)
    classes = [_meaning(name, known, by_spelling) for name in names]
    unknown = [name for name, one in zip(names, classes, strict=True) if one is None]
    meanings = [one for one in classes if one is not None]
    missing = [one for one in known if one not in meanings]
    twice = sorted({one for one in meanings if meanings.count(one) > 1})
    if unknown or missing or twice:
        reasons = {"only in the data": unknown, f"only in {whose}": missing, "named twice": twice}
        why = "; ".join(f"{reason}: {values}" for reason, values in reasons.items() if values)
        raise ConfigError(
            f"the classes of {where} are {list(names)}, those of {whose} are {list(known)}; "
            f"{why}. Rename the classes of the data, or set the words of each class by its name: "
            f'{{"{names[0] if names else "CLASS"}": "WORDS"}}'
        )
    return meanings


def _meaning(name: str, known: Mapping[str, object], by_spelling: Mapping[str, str]) -> str | None:
    # "t cell" and "T cell", or "12" and "1-2", are two classes where both are known.
    if name in known:
        return name
    known_name = by_spelling.get(normalize(name))
    return known_name or by_spelling.get(normalize(_LEADING_NUMBER.sub("", name.strip())))
