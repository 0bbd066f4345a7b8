"""Assignment of text to panel labels before it, after it, or only mentioned in it."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from biovl.articles.subcaptions.items import (
    clause_before,
    end_of_last,
    end_of_lead,
    is_coordinated,
    led_by,
)
from biovl.articles.subcaptions.label_selection import System
from biovl.articles.subcaptions.labels import LIST, expand, kinds_of
from biovl.articles.subcaptions.markers import Marker
from biovl.articles.subcaptions.sentences import OVERALL, SCALE, TRAILING, sentences
from biovl.articles.subcaptions.shared import Cut
from biovl.articles.subcaptions.sides import CERTAIN, vote
from biovl.articles.subcaptions.words import (
    ABOUT_IT,
    COMPARING,
    COMPLEMENT,
    EACH_ITS_OWN,
    NEXT_HEAD,
    NEXT_LEAD,
    NOTES,
    NOUN,
    PLOT,
    REFERRING,
    REFERRING_ON,
    SEPARATORS,
    SHOWN_IN,
    STAIN,
    STAINED,
    VERB,
)
from biovl.core.records import Span

_NAMING = re.compile(
    rf"\b(?:[Ii]n|[Ff]or)\s(?P<noun>(?:the\s|both\s)?panels?\s|\((?={LIST}\)))?\(?(?P<list>{LIST})(?![-–'′=])"
)
"""A reference to panels: ``Arrows in panels A and B``."""
_COUNT = re.compile(r"[nN]\s?=")
_SHORT_PANEL = 8
"""In words, on average. Seven of eight sentences behind shorter panels are about all, which is why
there are none behind the panels before."""
# "leaf (A) (bar = 1 cm), stem (B)": what a bracket says of the item in front of it.
_ASIDE = re.compile(r"\s\([^()]{2,40}\)(?=[,;])")


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of the caption and the labels it is about."""

    start: int
    end: int
    labels: tuple[str, ...] | None
    """None: the text applies to all panels."""
    cuts: tuple[Marker, ...] = ()
    """Markers to remove from the text."""


def segments(caption: str, system: System) -> tuple[list[Segment], float]:
    """Return the caption as contiguous ranges with the labels they are about, and a certainty.

    The certainty is the lowest probability of a boundary between the words that all items of a
    list share and the words of one item; 1 without such lists.
    """
    reader = _Reader(caption, system)
    return reader.read(), reader.certainty


class _Reader:
    def __init__(self, caption: str, system: System) -> None:
        self.caption = caption
        self.markers = system.markers
        self.every = _names(self.markers)
        self.openings = {name: m.start for m in self.markers if m.starts for name in m.names()}
        """Last position at which each label starts a sentence."""
        self.defined: set[str] = set()
        self.defined_end = 0
        """End of the last sentence that defines a panel or starts with a label."""
        self.found: list[Segment] = []
        self.certainty = 1.0
        """The lowest probability of a cut in a list."""
        self.unmarked: set[int] = set()
        """Starts of sentences without labels."""
        self.apart: set[int] = set()
        """Starts of sentences at the end that name the panels they are about."""
        self.current: tuple[str, ...] | None = None
        """Labels that apply to a following sentence without markers."""
        self.group: tuple[str, ...] = ()
        """Labels of the last list that starts a sentence, until a label outside it."""
        self.group_start = 0
        self.was_post = False
        self.are_first = False
        """Whether labels start sentences in this caption."""

    def read(self) -> list[Segment]:
        groups = self._sentences()
        votes = [vote(self.caption, span, inside) for span, inside in groups]
        overall = sum(votes)
        self.are_first = CERTAIN in votes
        marked = [at for at, (_, inside) in enumerate(groups) if inside]
        upcoming = iter([*marked, len(groups)])
        later = next(upcoming)
        for at, (span, inside) in enumerate(groups):
            if inside:
                later = next(upcoming)
                known = len(self.defined)
                self._note_group(span, inside)
                self._marked(span, inside, votes[at] or overall)
                if len(self.defined) > known or inside[0].start == span.start:
                    self.defined_end = span.end
            else:
                self._unmarked(span, groups[later][1] if later < len(groups) else ())
        last = groups[marked[-1]][0]
        if self.defined_end < last.start:
            self._free_between(self.defined_end, last.start)
        self._free_the_end(last.end)
        merged = self.found[:1]
        for segment in self.found[1:]:
            if segment.labels == merged[-1].labels and not segment.cuts:
                merged[-1] = replace(merged[-1], end=segment.end)
            else:
                merged.append(segment)
        return merged

    def _sentences(self) -> list[tuple[Span, list[Marker]]]:
        spans = sentences(self.caption, {marker.start for marker in self.markers})
        groups: list[tuple[Span, list[Marker]]] = []
        at = 0
        for span in spans:
            inside = []
            while at < len(self.markers) and self.markers[at].start < span.end:
                inside.append(self.markers[at])
                at += 1
            if groups and self._goes_on(*groups[-1], span.start):
                last, markers = groups[-1]
                groups[-1] = (Span(last.start, span.end), markers + inside)
            else:
                groups.append((span, inside))
        return groups

    def _goes_on(self, before: Span, markers: Sequence[Marker], start: int) -> bool:
        """Return whether the full stop before ``start`` is a label's and ends no sentence."""
        if not markers:
            return False
        # "(A. left)": a marker with full stops in it.
        if markers[-1].end > start:
            return True
        # "C. Photomicrograph of …", "a. Leaf, b. Root": nothing is between the label and its stop.
        last = markers[-1]
        between = self.caption[last.end : start].strip()
        is_labelled = markers[0].start == before.start
        return is_labelled and not between and self.caption[last.end - 1] in ".:"

    def _marked(self, span: Span, inside: Sequence[Marker], side: int) -> None:
        if self.defined == set(self.every) and SCALE.match(self.caption, span.start):
            # "Scale bars: (A–D), 65 μm; (E–H), 80 μm."
            self._add(span.start, span.end, None)
            return
        own: list[Marker] = []
        is_reference = False
        for marker in inside:
            is_reference = self._is_reference(marker, span, after_one=is_reference)
            if not is_reference:
                own.append(marker)
        if not own and self._is_list(inside):
            own = list(inside)
        if not own:
            # "The arrows in (A) …" is about A; "… as described in (A)" goes on about its own panel.
            before = self.caption[span.start : inside[0].start]
            is_said_of_it = len(inside) == 1 or ABOUT_IT.match(before) is not None
            goes_on = (
                len(before) > 60
                and is_said_of_it
                and not set(_names(inside)) < set(self.current or ())
            )
            is_upcoming = not set(_names(inside)) <= self.defined
            if self.current is not None and (goes_on or is_upcoming or _compares(before)):
                self._add(span.start, span.end, self.current)
                return
            self._add(span.start, span.end, _names(inside))
            self.current, self.was_post = _names(inside), True
            return
        for start, end, heading, markers in _groups(span, own):
            part = Span(start, end)
            again = _crossed_from(markers)
            if heading is not None:
                self._group(part, heading, markers)
            elif again:
                self._crossed(part, markers[:again], markers[again:], side)
            elif side > 0:
                self._ahead(part, markers)
            else:
                self._behind(part, markers, ())
            self.defined |= set(_names(markers))

    def _note_group(self, span: Span, inside: Sequence[Marker]) -> None:
        names = _names(inside)
        if not set(names) <= set(self.group):
            is_list = len(inside[0].labels) > 1 and inside[0].start <= span.start + 3
            self.group = inside[0].names() if is_list else ()
            self.group_start = span.start

    def _is_list(self, inside: Sequence[Marker]) -> bool:
        """Return whether a later sentence lists the members of the group it goes on about."""
        gaps = (self.caption[a.end : b.start] for a, b in itertools.pairwise(inside))
        is_all = self.current is not None and self.current == _names(inside)
        return len(inside) > 1 and is_all and all(len(gap.split()) > 1 for gap in gaps)

    def _group(self, span: Span, heading: Marker, members: Sequence[Marker]) -> None:
        """Assign text to a list of labels and to its members: ``(A–C) Views of (A) …, (B) …``."""
        inside = Span(heading.end, span.end)
        if self.caption[span.start : heading.start].strip(SEPARATORS + "("):
            self._add(span.start, heading.end, heading.names(), (heading,))
            cuts: tuple[Marker, ...] = ()
        else:
            inside, cuts = span, (heading,)
        # "… in liver (A) and lung (B); (C, D) Plots of both": the last opens a clause of its own.
        later = next((at for at, m in enumerate(members) if at and self._opens_clause(m)), None)
        own = members[:later]
        if vote(self.caption, Span(heading.end, own[-1].end + 60), own) > 0:
            self._add(inside.start, members[0].start, heading.names(), cuts)
            stop = self._cut(end_of_last(self.caption, members, span.end))
            ends = [*(marker.start for marker in members[1:]), stop]
            for marker, end in zip(members, ends, strict=True):
                self._add(marker.start, end, marker.names(), (marker,))
            self._add(stop, span.end, heading.names())
        elif later is None:
            self._behind(inside, own, cuts)
        else:
            self._behind(Span(inside.start, members[later].start), own, cuts)
            self._ahead(Span(members[later].start, span.end), members[later:])
            return
        self.current, self.was_post = heading.names(), heading.names() == self.every

    def _opens_clause(self, marker: Marker) -> bool:
        return self.caption[max(0, marker.start - 4) : marker.start].rstrip()[-1:] in (".", ";")

    def _is_reference(self, marker: Marker, span: Span, *, after_one: bool) -> bool:
        names = marker.names()
        # "The box is enlarged in (B). (B) …": its own sentence follows.
        is_upcoming = (
            self.current is not None
            and self.are_first
            and all(self.openings.get(name, 0) > marker.start for name in names)
        )
        if marker.start == span.start or not (is_upcoming or set(names) <= self.defined):
            return False
        before = self.caption[max(span.start, marker.start - 12) : marker.start]
        if after_one and REFERRING_ON.search(before):
            return True
        return REFERRING.search(before) is not None

    def _ahead(self, span: Span, own: Sequence[Marker]) -> None:
        """Assign the text after each label to it, for each list with words of its own in front."""
        for at in range(1, len(own)):
            # "XRD patterns of (A) X and (B) Y, XPS spectra of (C) X and (D) Y"
            head = NEXT_HEAD.search(self.caption, own[at - 1].end, own[at].start)
            if head:
                self._list_ahead(Span(span.start, head.start()), own[:at])
                self._ahead(Span(head.start(), span.end), own[at:])
                if _names(own) == self.every:
                    self.current, self.was_post = self.every, True
                return
        self._list_ahead(span, own)

    def _list_ahead(self, span: Span, own: Sequence[Marker]) -> None:
        """Assign the text after each label to it; text around the list applies to all."""
        names, first = _names(own), own[0].start
        led = led_by(self.caption, span.start, own)
        shares = len(own) > 1 and self.caption[span.start : first].rstrip()[-1:].isalnum()
        if NOTES.fullmatch(self.caption, span.start, first) or self._is_title(span.start, own):
            self._add(span.start, first, None)
        elif len(own) == 1 and self._is_next(span, own[0]):
            self._add(span.start, first, self.current)
        elif len(own) > 1 and self._closes(span.start, first):
            # "(B) Liver. Blue is collagen; (C) mass and (D) length were measured."
            self._add(span.start, first, self.current)
        elif len(own) == 1 or NOUN.fullmatch(self.caption, span.start, first):
            first = span.start
        else:
            # "Fluxes of rice: carbon of (A) leaves and (B) roots, water of (C) leaves and …"
            title = 0 if self.defined else self.caption.rfind(": ", span.start, first - 2)
            start = max(span.start, title + 1)
            self._add(span.start, start, None)
            self._add(start, first, _names(led))
        for at, marker in enumerate(own):
            end = own[at + 1].start if at + 1 < len(own) else span.end
            start = marker.start if at else first
            if at and not self.caption[marker.end : end].strip(SEPARATORS):
                start = clause_before(self.caption, own[at - 1].end, marker.start)
                last = self.found.pop()
                self._add(last.start, start, last.labels, last.cuts)
            is_listed = shares or is_coordinated(self.caption, own)
            is_shared = at + 1 == len(own) == len(led) and is_listed
            stop = self._cut(end_of_last(self.caption, own, end)) if is_shared else end
            later = own[at + 1 :]
            lead = (
                NEXT_LEAD.search(self.caption, marker.end, end) if later and stop == end else None
            )
            if lead and COMPLEMENT.search(lead[0]):
                # "(A) fixed; or subjected to (B) washing": what precedes the next labels.
                self._add(start, lead.start(), marker.names(), (marker,))
                self._add(lead.start(), end, _names(later))
            else:
                self._add(start, stop, marker.names(), (marker,))
                self._add(stop, end, names)
            self.defined |= set(marker.names())
        # "(A) Maize; (B) oat. …": text after a list in one sentence applies to all its items.
        is_group = self.current is not None and set(names) == set(self.current)
        is_list = len(own) > 1 and (names == self.every or is_group or shares or stop < end)
        self.current = names if is_list else own[-1].names()
        self.was_post = len(own) > 1 and names == self.every

    def _is_title(self, start: int, own: Sequence[Marker]) -> bool:
        """Return whether a colon ends the title: ``Spectra of both: (A) Raw spectrum. (B) …``."""
        is_first = not self.defined and len(own) == 1
        return is_first and self.caption[start : own[0].start].rstrip().endswith(":")

    def _closes(self, start: int, end: int) -> bool:
        """Return whether a range is a statement that a semicolon separates from what follows."""
        is_statement = len(self.caption[start:end].split()) > 3
        return (
            self.current is not None
            and is_statement
            and self.caption[start:end].rstrip()[-1:] == ";"
        )

    def _is_next(self, span: Span, marker: Marker) -> bool:
        """Return whether a marker starts a sentence whose preceding full stop is missing."""
        behind = self.caption[marker.end : marker.end + 4].lstrip(SEPARATORS)
        if not (self.are_first and behind[:1].isupper()):
            return False
        before = self.caption[span.start : marker.start].rstrip()
        is_whole = before.endswith(";") or TRAILING.match(before) is not None
        return is_whole or not COMPLEMENT.search(before)

    def _behind(self, span: Span, own: Sequence[Marker], heading: tuple[Marker, ...]) -> None:
        """Assign the text before each label to it, for each list that a semicolon separates."""
        # "… (E) and (F) views; and the process in lateral (G) and medial (H) views."
        start = 0
        for at in range(1, len(own)):
            stop = self.caption.find("; ", own[at - 1].end, own[at].start)
            # "Crown (A), occlusal view; root (B), lingual view."
            has_detail = self.caption.startswith(", ", own[at - 1].end) and stop > own[at - 1].end
            if stop >= 0 and (len(own) - start > 2 or has_detail):
                self._list_behind(Span(span.start, stop + 2), own[start:at], heading)
                span, start, heading = Span(stop + 2, span.end), at, ()
        self._list_behind(span, own[start:], heading)

    def _crossed(
        self, span: Span, first: Sequence[Marker], second: Sequence[Marker], side: int
    ) -> None:
        """Assign text to labels that are listed twice in one sentence, in different groups."""
        between = clause_before(self.caption, first[-1].end, second[0].start)
        is_ahead = side > 0 and vote(self.caption, Span(span.start, first[-1].end), first) >= 0
        is_ahead_again = side > 0 and vote(self.caption, Span(between, span.end), second) >= 0
        if is_ahead and is_ahead_again:
            self._ahead(span, [*first, *second])
            return
        # "(A, B) Liver and (C, D) lung, with low (A, C) and high (B, D) weight";
        # "Control (A, C) and treated (B, D) mice on days 1 (A, B) and 7 (C, D)"
        stop = between if is_ahead else first[-1].end
        for is_before, start, end, own in (
            (is_ahead, span.start, stop, first),
            (is_ahead_again, stop, span.end, second),
        ):
            if is_before:
                self._ahead(Span(start, end), own)
            else:
                self._behind(Span(start, end), own, ())

    def _list_behind(self, span: Span, own: Sequence[Marker], heading: tuple[Marker, ...]) -> None:
        """Assign the text before each label to it; text around the list applies to all."""
        names = _names(heading or own)
        start = span.start
        text_start = heading[0].end if heading else start
        lead = self._cut(end_of_lead(self.caption, text_start, own))
        if lead > text_start:
            self._add(start, lead, names, heading)
            start, heading = lead, ()
        earlier: dict[str, None] = {}
        for at, marker in enumerate(own):
            if at:
                start = self._predicate(start, marker, earlier)
            earlier.update(dict.fromkeys(marker.names()))
            end = own[at + 1].start if at + 1 < len(own) else span.end
            aside = _ASIDE.match(self.caption, marker.end, end)
            stop = aside.end() if aside else marker.end
            self._add(start, stop, marker.names(), (*heading, marker))
            start, heading = stop, ()
        if self.caption[start : span.end].strip(SEPARATORS):
            self._add(start, span.end, names)
        else:
            last = self.found.pop()
            self._add(last.start, span.end, last.labels, last.cuts)
        self.current, self.was_post = names, not heading or names == self.every

    def _predicate(self, start: int, marker: Marker, names: Iterable[str]) -> int:
        """Assign a predicate to the labels before it; return where the clause starts."""
        if not VERB.match(self.caption, start, marker.start):
            return start
        end = clause_before(self.caption, start, marker.start)
        if end == marker.start:
            return start
        self._add(start, end, tuple(names))
        return end

    def _unmarked(self, span: Span, after: Sequence[Marker]) -> None:
        """Assign a sentence without labels; ``after``: those of the next sentence that has some."""
        labels, is_last = self.current, not after
        if labels is not None and is_last and self.was_post:
            is_about_it = len(labels) == 1 and ABOUT_IT.match(self.caption, span.start)
            labels = labels if is_about_it else None
            self.current = labels
        is_scale = SCALE.match(self.caption, span.start) is not None
        is_general = is_scale or TRAILING.match(self.caption, span.start) is not None
        ends_group = self.group and after and not set(_names(after)) <= set(self.group)
        if ends_group and is_general and not self._has_before(span.start, self.group_start):
            labels = self.group
        # "In (a) dots are controls", "In panel A …", "In A and B, …"; not "In B cells, …".
        naming = _NAMING.match(self.caption, span.start)
        names_first = naming is not None and (
            naming["noun"] is not None or self.caption[naming.end() :][:1] in (",", ")")
        )
        named = self._named(span) if (is_last or names_first) and not is_scale else ()
        self._add(span.start, span.end, named or labels)
        self.unmarked.add(span.start)
        if named:
            self.current = None
            self.apart.add(span.start)

    def _named(self, span: Span) -> tuple[str, ...]:
        """Return the panels that a sentence without markers names: ``Arrows in A and B``.

        References in brackets, ``(arrow in C)``, are only about a part of the sentence.
        """
        names: dict[str, None] = {}
        depth, at, is_list = 0, span.start, False
        for match in _NAMING.finditer(self.caption, span.start, span.end):
            text = match["list"]
            between = self.caption[at : match.start()]
            depth += between.count("(") - between.count(")")
            is_list = is_list or ";" in between
            at = match.start()
            before = self.caption[max(span.start, at - 100) : at]
            labels = [label.name for kind in kinds_of(text) for label in expand(text, kind)]
            is_clear = text[0].isupper() or match["noun"] or len(labels) > 1
            is_aside = depth > 0 or _compares(before + "in ")
            # "T, thymus; asterisks in D: …": abbreviations are explained for all panels.
            # "In C. elegans": no panel.
            is_initial = len(labels) == 1 and re.match(
                r"\.\s[a-z]", self.caption[match.end() :][:3]
            )
            if is_clear and not (is_aside or is_initial) and (names or not is_list):
                names |= dict.fromkeys(label for label in labels if label in self.every)
        return tuple(names)

    def _free_between(self, start: int, end: int) -> None:
        """Make sentences about the whole figure apply to all panels, before a mention of some.

        ``(B) Mass. Data are means ± SD. Bars in (A): 5 mm.``
        """
        is_before = (at for at in self._general(start) if self.found[at].start < end)
        general, plain = set(is_before), self.unmarked - self.apart
        is_free = False
        for at, segment in enumerate(self.found):
            is_plain = segment.start in plain and segment.start < end
            is_free = is_plain and (is_free or at in general)
            if is_free:
                self.found[at] = replace(segment, labels=None)

    def _free_the_end(self, after: int) -> None:
        """Make the sentences from the first one about the whole figure on apply to all panels."""
        parts_start = self._parts_start()
        # A paragraph without label, where all parts are in one, or each is one.
        starts = {marker.start for marker in self.markers}
        lines = (match.end() for match in re.finditer("\n", self.caption))
        apart = next((at for at in lines if at > parts_start and at not in starts), None)
        is_plain = self._is_plain(after)
        first = next(self._general(after), len(self.found))
        for at, segment in enumerate(self.found):
            goes_on = ABOUT_IT.match(self.caption, segment.start) is not None
            is_apart = segment.start == apart or (is_plain and not segment.cuts and not goes_on)
            is_apart = is_apart and segment.start >= after and segment.labels is not None
            if is_apart or at == first:
                self.found[at:] = [
                    s if s.start in self.apart else replace(s, labels=None, cuts=())
                    for s in self.found[at:]
                ]
                return

    def _parts_start(self) -> int:
        return next((s.start for s in self.found if s.labels is not None), 0)

    def _general(self, after: int) -> Iterator[int]:
        """Yield the indices of stock sentences from a position on that are about all panels."""
        parts_start = self._parts_start()
        # Labels of the panels that have a sentence of each kind.
        others = {
            kind: {
                s.labels
                for s in self.found
                if s.labels and s.start < after and kind.match(self.caption, s.start)
            }
            for kind in EACH_ITS_OWN
        }
        for at, segment in enumerate(self.found):
            if segment.start < after or not self._is_about_all(segment):
                continue
            # Where panels have several sentences, the last panel has, too.
            has_prose = any(s.labels and not s.cuts for s in self.found[:at])
            if has_prose and PLOT.match(self.caption, segment.start):
                continue
            # "H&E, ×100": of all, unless an earlier part says how it was stained.
            if STAIN.match(self.caption, segment.start) and STAINED.search(
                self.caption, parts_start, segment.start
            ):
                continue
            # Every part has its own error bars, so the last one has, too.
            if self._has_before(segment.start, parts_start):
                continue
            if any(
                kind.match(self.caption, segment.start)
                and any(set(labels).isdisjoint(segment.labels or labels) for labels in have)
                for kind, have in others.items()
            ):
                continue
            yield at

    def _is_plain(self, end: int) -> bool:
        """Return whether each panel has one sentence, all of them short or the last like another.

        What follows is about all then: ``(A) Rice. (B) Oat. (C) Rye. Plants grew at 20 °C.``

        Args:
            end: Position in the caption where the last sentence with a label ends.
        """
        parts = [s for s in self.found if s.labels and s.start < end]
        names = [name for s in parts for name in s.labels or ()]
        items = [
            self.caption[marker.end : s.end].strip(SEPARATORS).split()
            for s in parts
            for marker in s.cuts
        ]
        if len(set(names)) < len(names) or len(items) < 2 or not all(items):
            return False
        is_alike = any(item[:2] == items[-1][:2] for item in items[:-1])
        is_short = sum(map(len, items)) < _SHORT_PANEL * len(items)
        # Two panels are too few to tell: "(A) Map. (B) Liver. The image shows mitochondria."
        return is_alike or (is_short and len(items) > 2)

    def _is_about_all(self, segment: Segment) -> bool:
        is_stock = TRAILING.match(self.caption, segment.start) is not None
        return is_stock or OVERALL.search(self.caption, segment.start, segment.end) is not None

    def _has_before(self, start: int, since: int) -> bool:
        """Return whether the first words of a sentence have occurred since a position."""
        # "Scale bar", "Bar,", "Magnification:" and "Data are": the number behind them differs.
        words = self.caption[start : start + 60].split(None, 2)[:2]
        opening = words[0] if words[0].endswith((",", ":")) else " ".join(words)
        # "n=3 mice" and "n=5 mice" open alike, too.
        if count := _COUNT.match(opening):
            opening = count[0]
        whole = re.compile(rf"(?<!\w){re.escape(opening)}")
        return whole.search(self.caption, since, start) is not None

    def _cut(self, cut: Cut) -> int:
        self.certainty = min(self.certainty, cut.chance)
        return cut.at

    def _add(
        self, start: int, end: int, labels: tuple[str, ...] | None, cuts: tuple[Marker, ...] = ()
    ) -> None:
        if labels is not None and not cuts and set(labels) == set(self.every):
            labels = None
        if start < end:
            self.found.append(Segment(start, end, labels, cuts))


def _names(markers: Sequence[Marker]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for marker in markers for name in marker.names()))


def _crossed_from(own: Sequence[Marker]) -> int:
    """Return where markers list the same labels again in other groups; 0 if they do not."""
    groups = [frozenset(marker.names()) for marker in own]
    seen: set[str] = set()
    again = 0
    while again < len(groups) and not groups[again] & seen:
        seen |= groups[again]
        again += 1
    first, second = groups[:again], groups[again:]
    if min(len(first), len(second)) < 2 or seen != set().union(*second):
        return 0
    return 0 if any(a <= b for a in first for b in second) else again


def _compares(before: str) -> bool:
    """Return whether the text in front of a label compares with that panel, or points to it."""
    return COMPARING.search(before) is not None and SHOWN_IN.match(before) is None


def _groups(
    span: Span, own: Sequence[Marker]
) -> Iterator[tuple[int, int, Marker | None, list[Marker]]]:
    """Yield the parts of a sentence: start, end, label of a group or None, and the markers.

    A group is a list of labels with all of its members behind it.
    """
    start, at = span.start, 0
    plain: list[Marker] = []
    while at < len(own):
        heading = set(own[at].names())
        stop = at + 1
        while stop < len(own) and set(own[stop].names()) < heading:
            stop += 1
        members = list(own[at + 1 : stop])
        is_first = own[at].start <= start + 3
        if len(members) > 1 and (is_first or set(_names(members)) == heading):
            if plain:
                yield start, own[at].start, None, plain
                start, plain = own[at].start, []
            end = own[stop].start if stop < len(own) else span.end
            yield start, end, own[at], members
            start, at = end, stop
        else:
            plain.append(own[at])
            at += 1
    if plain:
        yield start, span.end, None, plain
