"""Lists of figures and panels: the text after "Fig." in a sentence, parsed item by item.

Numbers and preceding words apply to later items: "2A, C and 3B–D" names 2A, 2C, 3B, 3C and 3D. A
possible word of the sentence, count or statistic ends the list: precision before recall.
"""

import re

from biovl.articles.citances import patterns
from biovl.articles.citances.labels import Item, labels_between, names_of, panel_at, places_in
from biovl.articles.citances.patterns import CLOSED, CONTINUES, DASH

_MAX_RANGE = 30
_WORDS = frozenset({"a", "A", "I"})


class ListReader:
    """Parser of one list of figures and panels, from a position in the text."""

    def __init__(self, text: str, *, is_plural: bool, is_before_word: bool = False) -> None:
        """Prepare to parse a text after "Figs" or "Fig", or before it: "S3 and 4 Figs"."""
        self.text = text
        self.is_plural = is_plural
        self.is_before_word = is_before_word
        self.is_open = False
        """Whether a bracket around panels is open: ``9(c,d)``."""
        self.items: list[Item] = []

    def read(self, position: int) -> int:
        """Parse numbers and their panels; return where the list ends."""
        bracket = self.text[position : position + 1] == "("
        number = self._number(position + bracket)
        if number is None:
            return position
        end = self._add_number(number, position)
        if bracket:
            if self.text[end : end + 1] != ")":
                self.items.clear()
                return position
            end += 1
        end = self._own_panels(end, is_first=True)
        return self._go_on(end)

    def read_labels(self, position: int) -> int:
        """Parse panels of the current item, without figure numbers; return where they end."""
        end = self._label(position, None, is_direct=True)
        return position if end is None else self._go_on(end, numbers=False)

    def _go_on(self, end: int, *, numbers: bool = True) -> int:
        while True:
            end = self._place_behind(end)
            self.items[-1].end = end
            if self.is_open and self.text[end : end + 1] in (")", "]"):
                end += 1
                self.is_open = False
            joint = patterns.JOINT.match(self.text, end)
            if joint is None:
                break
            after = self._number_behind(joint) if numbers else None
            # "2(a)(b)" continues without a separator, "2A (b)" does not.
            goes_on = joint["none"] is None or self.text[end - 1] in ")]"
            if after is None and goes_on:
                after = self._label(joint.end(), joint)
            if after is None:
                break
            end = after
        pointed = patterns.POINTED_AT.match(self.text, end)
        if pointed is not None:
            end = pointed.end()
        self.items[-1].end = end
        return end

    # Numbers.

    def _number(self, position: int) -> re.Match[str] | None:
        for pattern in (patterns.NUMBER, patterns.ROMAN_NUMBER, patterns.LETTER_NUMBER):
            match = pattern.match(self.text, position)
            if match is not None and not patterns.NOT_A_FIGURE.match(self.text, match.end()):
                return match
        return None

    def _add_number(self, number: re.Match[str], start: int, carried: str = "") -> int:
        groups = number.groupdict()
        prefix = (groups.get("prefix") or "").replace(" ", "") or carried
        digits = groups.get("digits") or groups.get("roman") or groups.get("letter") or ""
        digits = digits.lstrip("0") or digits
        if groups.get("supplement"):
            prefix = f"{prefix}{digits}—figure supplement "
            digits = groups["of"] or ""
        self.items.append(Item(prefix + digits, prefix, start, number.end()))
        return number.end()

    def _number_behind(self, joint: re.Match[str]) -> int | None:
        """Parse the next number of the list, with its panels; None if there is none."""
        position = joint.end()
        again = patterns.HEAD_AGAIN.match(self.text, position) if joint["range"] else None
        if again is not None:
            position = again.end()
        number = self._number(position)
        if number is None or not number.groupdict().get("digits"):
            return None
        last = self.items[-1]
        has_prefix = bool(number["prefix"])
        label = patterns.LABEL.match(self.text, number.end())
        has_label = label is not None and label["label"] not in patterns.ORDINALS
        if again is None and not has_label and not self._is_number(number, joint):
            return None
        if has_label and label is not None:
            after = self.text[label.end() : label.end() + 20]
            if patterns.NO_PANEL_WORD.match(after) or (
                not label["open"] and _is_prose_behind(after)
            ):
                return None
        if patterns.NOT_FIGURES.match(self.text, number.end()) and has_prefix:
            return None
        # Authors repeat the S in a list: "Figures S4A and 7" names a figure of the article.
        carries = joint["range"] or self.is_before_word or len(last.prefix) > 3
        carried = last.prefix if carries and not has_prefix else ""
        if joint["range"] and last.panels and not has_label:
            return None
        before = len(self.items)
        end = self._add_number(number, joint.end(), carried)
        new = self.items[-1]
        end = self._own_panels(end, is_first=False)
        if joint["range"]:
            return self._close_range(before, end)
        if new.figure == last.figure and not joint["versus"]:
            self.items.pop()
            last.panels += new.panels
            last.newest, last.parent, last.end = new.newest, new.parent, end
        return end

    def _is_number(self, number: re.Match[str], joint: re.Match[str]) -> bool:
        """Return whether a plain number later in a list is a figure's."""
        end = number.end()
        if patterns.UNIT.match(self.text, end):
            return False
        if number["prefix"] or number["supplement"]:
            return True
        before = self.text[max(end - 500, 0) : end]
        if self.text[end : end + 1] == ")" and before.count("(") <= before.count(")"):
            # "… in Fig. 4; 2) they are kept": numbers of an enumeration.
            return False
        if CLOSED.match(self.text, end) or CONTINUES.match(self.text, end):
            return True
        if patterns.LIST_GOES_ON.match(self.text, end):
            return True
        return self.is_plural and (joint["word"] is not None or joint["range"] is not None)

    def _close_range(self, before: int, end: int) -> int | None:
        """Add the items between the last two; remove the last one if the range is invalid."""
        first, last = self.items[before - 1], self.items[before]
        if first.figure == last.figure:
            self.items.pop()
            if not first.panels or not last.panels:
                return None
            fill = labels_between(first.panels[-1], last.panels[0])
            if fill is None:
                return None
            first.panels += fill + last.panels
            first.newest = first.newest + len(fill) + len(last.panels)
            first.end = end
            return end
        start, stop = first.figure[len(first.prefix) :], last.figure[len(last.prefix) :]
        span_is_plain = start.isdigit() and stop.isdigit() and first.prefix == last.prefix
        if not span_is_plain or not 0 < int(stop) - int(start) <= _MAX_RANGE:
            self.items.pop()
            return None
        middle = [
            Item(f"{first.prefix}{number}", first.prefix, first.start, end)
            for number in range(int(start) + 1, int(stop))
        ]
        if not first.panels and not last.panels:
            first.end = end
            last.start = first.start
        self.items[before:before] = middle
        return end

    # Panels.

    def _own_panels(self, end: int, *, is_first: bool) -> int:
        """Parse the panels directly after a number; return where they end."""
        direct = self._label(end, None, is_direct=True)
        if direct is not None:
            return direct
        apart = patterns.APART.match(self.text, end)
        if apart is None or apart.end() == end:
            return end
        if apart["word"]:
            return self._label(apart.end(), None, is_direct=True) or end
        if apart["sign"].strip() == ";":
            return end
        return self._apart(apart, end, is_first=is_first)

    def _apart(self, apart: re.Match[str], end: int, *, is_first: bool) -> int:
        """Parse panels after a space, a comma or a dash, unless they may be words.

        After a later number of the list, only a list of panels counts: ``Figs. 2D and 3, A and D``.
        """
        position = apart.end()
        label = patterns.LABEL.match(self.text, position)
        if label is None or (len(label["label"]) > 1 and not label["open"]):
            return end
        rest = label.end()
        sign = apart["sign"].strip()
        if label["open"]:
            return self._bracketed(position, is_legend=sign == ".") or end
        if _is_prose_behind(self.text[rest : rest + 20]) or label["close"] == "]":
            return end
        if sign and sign in DASH:
            return self._label(position, None, is_direct=True) or end
        closed = is_first and CLOSED.match(self.text, rest) is not None
        lists = _LABELS_GO_ON.match(self.text, rest) is not None
        if sign == ".":
            return end if not (closed or lists) else self._label(position, None) or end
        is_word = label["label"] in _WORDS
        goes_on = is_first and CONTINUES.match(self.text, rest) and label["label"].isupper()
        if sign in (",", ":"):
            allowed = lists or (closed and self.text[rest : rest + 1] in (")", "]", ";", ""))
        else:
            allowed = lists or closed or bool(goes_on and (not is_word or label["label"] == "A"))
        return (self._label(position, None) or end) if allowed else end

    def _bracketed(self, position: int, *, is_legend: bool) -> int | None:
        """Parse "(a, b)" or "(A–C, left)" after a number, if it contains only panels.

        After a full stop it may be the start of a legend: "Fig. 2. (b) Mean of six".
        """
        item = self.items[-1]
        inner = ListReader(self.text, is_plural=True)
        inner.items = [Item(item.figure, item.prefix, position, position)]
        end = inner.read_labels(position)
        if end == position or self.text[end - 1 : end] not in (")", "]"):
            closing = self.text[end : end + 1]
            if end == position or closing not in (")", "]"):
                return None
            end += 1
        if is_legend and not CLOSED.match(self.text, end):
            return None
        item.panels += inner.items[0].panels
        item.newest = len(inner.items[0].panels)
        return end

    def _label(
        self, position: int, joint: re.Match[str] | None, *, is_direct: bool = False
    ) -> int | None:
        """Add the panel at a position; return where it ends, None if there is none."""
        item = self.items[-1]
        label = patterns.LABEL.match(self.text, position)
        if label is None or (not is_direct and self._is_prose(label, joint)):
            return None
        if label["label"] in patterns.ORDINALS and not label["open"]:
            return None
        names = names_of(label, item, is_direct=is_direct)
        if not names:
            return None
        end = label.end()
        if label["close"] and not label["open"]:
            end = label.end() if self.is_open else label.start("close")
            self.is_open = False
        elif label["open"]:
            self.is_open = not label["close"]
        fill: list[str] = []
        if joint is not None and joint["range"]:
            filled = labels_between(item.panels[-1], names[0]) if item.panels else None
            if filled is None:
                return None
            fill = filled
            item.newest += len(fill) + len(names)
        else:
            item.newest = len(names)
        item.panels += fill + names
        return self._part(end, label, item)

    def _part(self, end: int, label: re.Match[str], item: Item) -> int:
        """Parse a part in brackets after its panel: ``3A(i)``."""
        part = None if label["open"] or label["close"] else patterns.PART.match(self.text, end)
        if part is None or len(label["label"]) > 1:
            return end
        item.panels[-1] = f"{label['label']}.{part['part']}"
        item.parent = f"{label['label']}."
        return part.end()

    def _is_prose(self, label: re.Match[str], joint: re.Match[str] | None) -> bool:
        """Return whether a letter in a list is more likely a word, a statistic or a name."""
        text, item = label["label"], self.items[-1]
        rest = self.text[label.end() : label.end() + 20]
        if joint is not None and not item.panels:
            return True
        if label["close"]:
            return False
        if _is_prose_behind(rest):
            return True
        if joint is not None and joint["sign"] == ";":
            return not label["open"]
        goes_on = CLOSED.match(rest) or _LABELS_GO_ON.match(rest) or CONTINUES.match(rest)
        if text in _WORDS and not goes_on:
            return True
        if text == "a" and not (CLOSED.match(rest) or _LABELS_GO_ON.match(rest)):
            return True
        first = item.panels[0] if item.panels else text
        other_case = first[0].isupper() != text[0].isupper()
        return other_case and not item.parent and not rest.startswith((")", "]", ";"))

    def _place_behind(self, end: int) -> int:
        """Parse "left", "upper panel", "(inset)" after a reference; return where it ends."""
        match = patterns.PLACES_AFTER.match(self.text, end)
        if match is None:
            return end
        gap = match["gap"].strip()
        rest = self.text[match.end() : match.end() + 20]
        if gap == "(":
            if not match["close"]:
                return end
            stop = match.end()
        else:
            stop = match.start("close") if match["close"] else match.end()
            closed = CLOSED.match(self.text, stop) or rest.startswith((" and ", " or "))
            if not match["noun"] and not closed:
                return end
        item = self.items[-1]
        places = places_in(match["places"], match["noun"])
        if item.panels and item.place < 0:
            plural = bool(match["noun"]) and match["noun"].endswith("s") and len(places) == 1
            count = item.count_without_place()
            if not plural:
                count = min(count, max(item.newest, 1))
            if not count:
                return end
            placed = [panel_at(panel, place) for panel in item.panels[-count:] for place in places]
            item.panels[-count:] = placed
            item.newest = len(placed)
        else:
            item.place = 0
            item.panels += places
        return stop


def _is_prose_behind(rest: str) -> bool:
    return patterns.PROSE.match(rest) is not None


_LABELS_GO_ON = re.compile(
    rf"(?:\s?[,&/{DASH}]\s?(?:(?:and|or|&)\s)?|\s(?:and|or|to|through|vs\.?)\s)"
    r"[(\[]?[A-Za-z](?![A-Za-z])(?!\s?[=<>≤≥])"
)
