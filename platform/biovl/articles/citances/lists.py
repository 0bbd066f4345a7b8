"""Lists of figures and panels: the text after "Fig." in a sentence, parsed item by item.

Numbers and preceding words apply to later items: "2A, C and 3B–D" names 2A, 2C, 3B, 3C and 3D. The
list ends at anything that may be an ordinary word, a count or a statistic: precision is preferred
to recall.
"""

import re

from biovl.articles.citances import patterns
from biovl.articles.citances.labels import Item, labels_between, names_of, panel_at, places_in
from biovl.articles.citances.patterns import CLOSED, CONTINUES, DASH
from biovl.articles.figure_references import NUMBERED

_MAX_RANGE = 30
_NEAR = 4
"""Maximum distance of letters that are panels on both sides of other words."""
_WORDS = frozenset({"a", "A", "I"})
# "In Fig. 2 a is the slope": a symbol of the sentence.
_IS = re.compile(r"\s(?:is|are|was|were|denotes?|stands?)\b")
_INSIDE = re.compile(r"\bin\sfig(?:ure)?s?\.?\s?[\w.-]{1,8}\Z", re.IGNORECASE)
_BEFORE_WORDS = frozenset("ABCDEFGHJKLMNOPQRSTUVWXYZabcdefgh")
"""Panels after a space, in front of words; other letters may be "I" or a statistic."""


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

    def read_panels(self, position: int) -> int:
        """Parse panels of the current item behind its name: ``S1 Fig A``; return where they end."""
        end = self._own_panels(position, is_first=True)
        return position if end == position else self._go_on(end, numbers=False)

    def _go_on(self, end: int, *, numbers: bool = True) -> int:
        is_pointed = False
        while True:
            end = self._behind_item(end)
            self.items[-1].end = end
            if self.is_open and self.text[end : end + 1] in (")", "]"):
                end += 1
                self.is_open = False
            half = None if self.is_open else patterns.HALF_BRACKET.match(self.text, end)
            after = self._next(
                end if half is None else half.end(), numbers=numbers, is_pointed=is_pointed
            )
            if after is None and not is_pointed:
                pointed = patterns.POINTED_AT.match(self.text, end)
                if pointed is not None:
                    end = self.items[-1].end = pointed.end()
                    is_pointed = True
                    continue
            if after is None:
                return end
            end, is_pointed = after, False

    def _next(self, end: int, *, numbers: bool, is_pointed: bool) -> int | None:
        """Parse the next number or panel of the list; return where it ends, None at its end."""
        joint = patterns.JOINT.match(self.text, end)
        if joint is None:
            return None
        after = self._number_behind(joint, is_pointed=is_pointed) if numbers else None
        # "2(a)(b)" continues without a separator, "2A (b)" does not.
        goes_on = joint["none"] is None or self.text[end - 1] in ")]"
        is_joined = joint["range"] or (joint[0] == "," and not self.is_plural)
        if after is None and is_joined:
            after = self._same_letter(joint.end())
        if after is None and goes_on:
            after = self._label(joint.end(), joint, is_pointed=is_pointed)
        return after

    def _behind_item(self, end: int) -> int:
        """Parse a footnote mark, panels of a panel and a position; return where they end."""
        mark = patterns.FOOTNOTE.match(self.text, end)
        return self._place_behind(self._inner_panels(end if mark is None else mark.end()))

    def _inner_panels(self, end: int) -> int:
        """Parse "panels A–D" after the panel that contains them: ``1C, panels A–D``."""
        item = self.items[-1]
        word = patterns.INNER_PANELS.match(self.text, end)
        if word is None or not item.panels or item.outer is not None or len(item.panels[-1]) > 1:
            return end
        inner = ListReader(self.text, is_plural=True)
        inner.items = [Item(item.figure, item.prefix, end, end, outer="")]
        stop = inner.read_labels(word.end())
        if stop == word.end():
            return end
        item.outer = f"{item.panels.pop()}."
        item.panels += [item.outer + panel for panel in inner.items[0].panels]
        item.newest = inner.items[0].newest
        return stop

    def _same_letter(self, position: int) -> int | None:
        """Parse the last number of ``A1–3``."""
        item = self.items[-1]
        number = patterns.SAME_LETTER.match(self.text, position)
        if number is None or not item.panels or not item.panels[-1][1:].isdigit():
            return None
        letter, first = item.panels[-1][0], int(item.panels[-1][1:])
        start = int(number[0]) if self.text[position - 1] == "," else first + 1
        item.panels += [f"{letter}{one}" for one in range(start, int(number[0]) + 1)]
        return number.end() if int(number[0]) > first else None

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

    def _number_behind(self, joint: re.Match[str], *, is_pointed: bool) -> int | None:
        """Parse the next number of the list, with its panels; None if there is none."""
        position = joint.end()
        again = patterns.HEAD_AGAIN.match(self.text, position) if joint["range"] else None
        if again is not None:
            position = again.end()
        number = self._number(position)
        last = self.items[-1]
        if number is None or "letter" in number.groupdict():
            return None
        if "roman" in number.groupdict():
            is_alike = self.is_plural and not set(last.figure) - set("IVX") and not last.panels
            return self._add_number(number, position) if is_alike else None
        has_prefix = bool(number["prefix"])
        if (
            has_prefix
            and len(number["prefix"]) == 1
            and last.panels
            and last.panels[-1][1:].isdigit()
        ):
            # "3A1, A2": a panel, not a figure of an appendix.
            return None
        # "1(a) to 1 (c)"
        apart = self.text[number.end() : number.end() + 2] == " ("
        label = patterns.LABEL.match(self.text, number.end() + apart)
        if apart and label is not None and not label["close"]:
            label = None
        has_label = label is not None and label["label"] not in patterns.ORDINALS
        if label is not None and has_prefix and not last.prefix and len(label["label"]) > 1:
            # "2C, C57BL/6 mice"
            return None
        is_plain = again is None and not has_label
        if is_plain and (is_pointed or not self._is_number(number, joint)):
            return None
        if has_label and label is not None:
            behind = label.end() if label["open"] else label.end("label")
            after = self.text[behind : behind + 20]
            # A range ends a sentence where "5A–5D. in" resembles the initial of a species.
            is_prose = not label["open"] and not joint["range"] and _is_prose_behind(after)
            # "2A, 3D models", but "Figures 2A and 2B model the flow".
            is_no_panel = after.startswith((" mice", " cells")) or (
                label["label"] == "D" and patterns.NO_PANEL_WORD.match(after)
            )
            if is_prose or (is_no_panel and not label["open"]):
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
        if self.text[end : end + 1] == ")" and not _is_bracket_open(
            self.text[max(end - 500, 0) : end]
        ):
            # "… in Fig. 4; 2) they are kept": numbers of an enumeration.
            return False
        if CLOSED.match(self.text, end) or CONTINUES.match(self.text, end):
            return True
        if patterns.LIST_GOES_ON.match(self.text, end) or patterns.ARROW.match(self.text, end):
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
        arrow = patterns.ARROW.match(self.text, end)
        direct = self._label(end if arrow is None else arrow.end(), None, is_direct=True)
        if direct is not None:
            return direct
        apart = patterns.APART.match(self.text, end)
        if apart is None or apart.end() == end:
            return end
        if apart["word"]:
            stop = self._label(apart.end(), None, is_direct=True)
            if stop is not None:
                self.items[-1].outer = ""
            return stop or end
        if apart["sign"].strip() == ";":
            return end
        return self._apart(apart, end, is_first=is_first)

    def _apart(self, apart: re.Match[str], end: int, *, is_first: bool) -> int:
        """Parse panels after a space, a comma or a dash, unless they may be words.

        After a later number of the list, only a list of panels counts: ``Figs. 2D and 3, A and D``.
        """
        position = apart.end()
        sign = apart["sign"].strip()
        if sign == "," and is_first and not self.is_plural and NUMBERED.match(self.text, position):
            return self._label(position, None, is_direct=True) or end
        label = patterns.LABEL.match(self.text, position)
        if label is None or (len(label["label"]) > 1 and not label["open"]):
            return end
        rest = label.end() if label["open"] else label.end("label")
        if label["open"]:
            return self._bracketed(position, is_legend=sign == ".") or end
        if _is_prose_behind(self.text[rest : rest + 20]) or label["close"] == "]":
            return end
        if sign and sign in DASH:
            return self._label(position, None, is_direct=True) or end
        # "Figs. 4 b and 5 b"
        before = self.items[-2] if not is_first else None
        is_alike = before is None or (before.panels and self.text[before.end - 2].isspace())
        closed = is_alike and CLOSED.match(self.text, rest) is not None
        lists = _LABELS_GO_ON.match(self.text, rest) is not None
        if sign == ".":
            return end if not (closed or lists) else self._label(position, None) or end
        # "Fig. 2 a shows": no article precedes these words.
        is_panel = is_first and not sign and label["label"] in _BEFORE_WORDS
        is_symbol = _IS.match(self.text, rest) and _INSIDE.search(self.text, max(0, end - 24), end)
        goes_on = is_panel and not is_symbol and CONTINUES.match(self.text, rest) is not None
        if sign in (",", ":"):
            allowed = lists or (closed and self.text[rest : rest + 1] in (")", "]", ";", ""))
        else:
            allowed = lists or closed or goes_on
        return (self._label(position, None, is_direct=goes_on) or end) if allowed else end

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
        self,
        position: int,
        joint: re.Match[str] | None,
        *,
        is_direct: bool = False,
        is_pointed: bool = False,
    ) -> int | None:
        """Add the panel at a position; return where it ends, None if there is none."""
        item = self.items[-1]
        label = patterns.LABEL.match(self.text, position)
        if label is None or (not is_direct and self._is_prose(label, joint, is_pointed=is_pointed)):
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
        if joint is not None and joint["range"] and self._is_part(names[0], joint):
            item.parent = f"{item.panels.pop()}."
            names = [item.parent + names[0]]
        elif joint is not None and joint["range"]:
            filled = labels_between(item.panels[-1], names[0]) if item.panels else None
            if filled is None:
                return None
            fill = filled
            item.newest += len(fill) + len(names)
        else:
            item.newest = len(names)
        item.panels += fill + names
        return self._part(end, label, item)

    def _is_part(self, name: str, joint: re.Match[str]) -> bool:
        """Return whether ``i`` is a part of its panel in ``2A-i``, not the end of a range."""
        panels = self.items[-1].panels
        last = panels[-1] if panels else ""
        return name in patterns.ROMANS and len(last) == 1 and last.isupper() and joint[0] == "-"

    def _part(self, end: int, label: re.Match[str], item: Item) -> int:
        """Parse a part in brackets after its panel: ``3A(i)``."""
        part = None if label["open"] or label["close"] else patterns.PART.match(self.text, end)
        if part is None or len(label["label"]) > 1:
            return end
        item.panels[-1] = f"{label['label']}.{part['part'] or part['roman']}"
        item.parent = f"{label['label']}."
        return part.end()

    def _is_prose(
        self, label: re.Match[str], joint: re.Match[str] | None, *, is_pointed: bool
    ) -> bool:
        """Return whether a letter in a list is more likely a word, a statistic or a name."""
        text, item = label["label"], self.items[-1]
        rest = self.text[label.end() : label.end() + 20]
        if joint is not None and not item.panels:
            return True
        last = item.panels[-1] if item.panels else ""
        if patterns.STAIN.match(self.text, label.start()) and last != "G":
            return True
        if joint is not None and joint["sign"] == ";" and last.endswith(")"):
            # "5 A, left; B, right"
            return len(text) > 1 or not patterns.PLACES_AFTER.match(self.text, label.end())
        if joint is not None and joint["sign"] == ";" and not is_pointed:
            # "2(a); (b)", but not "2A; (B) Cells".
            return not label["open"] or self.text[joint.start() - 1] not in ")]"
        if label["close"]:
            return False
        if _is_prose_behind(rest):
            return True
        if is_pointed:
            # "1A, arrow; B, arrowhead": only a letter of the same kind.
            is_alike = len(text) == len(last) == 1 and 0 < ord(text) - ord(last) <= _NEAR
            return not (is_alike and CLOSED.match(rest))
        goes_on = (
            patterns.PART.match(rest)
            or CLOSED.match(rest)
            or _LABELS_GO_ON.match(rest)
            or CONTINUES.match(rest)
        )
        # "G–I and Table 1", "D,I and": words have a space in front.
        is_tied = joint is not None and (joint["range"] or not joint[0][-1:].isspace())
        if text in _WORDS and not goes_on and not is_tied:
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


def _is_bracket_open(text: str) -> bool:
    depth = 0
    for sign in reversed(text):
        if sign == "(" and not depth:
            return True
        depth += (sign == ")") - (sign == "(")
    return False


def _is_prose_behind(rest: str) -> bool:
    return patterns.PROSE.match(rest) is not None


_LABELS_GO_ON = re.compile(
    rf"(?:\s?[,&/{DASH}]\s?(?:(?:and|or|&)\s)?|\s(?:and|or|to|through|vs\.?)\s)"
    r"(?:\d{1,2}\s?)?[(\[]?[A-Za-z](?![A-Za-z])(?!\s?[=<>≤≥])"
)
