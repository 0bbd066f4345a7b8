"""How time and memory grow with the length of captions, sentences, paragraphs and articles.

    python benchmarks/compound_fuzz.py [--start 4000] [--random 20] [--only citances]

Each entry point reads made-up texts of n, 2n, 4n and 8n characters, each in a process of its own:
repeated references and markers, nested brackets, ranges, lists without spaces, and random
repetitions of such pieces. The table has the worst text of each entry point: CPU time and memory
at 8n, and the exponent of the growth from 2n on; 1 is linear. A run that exceeds the limit ends
there, and its time is a lower bound.
"""

import argparse
import multiprocessing
import random
import re
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import log

from biovl.articles import acronyms, figure_references, sentences, text
from biovl.articles.citances.extraction import citances, references, statements
from biovl.articles.figure_mentions import Reference
from biovl.articles.jats import read_article
from biovl.articles.subcaptions.splitting import split_caption
from biovl.core.records import Mention, Span
from biovl.split import rows

UNITS = {
    "references": "Cells grew (Fig. 2A). ",
    "one sentence of references": "Cells grew (Fig. 2A), ",
    "distinct references": "Fig. {}A, ",
    "clauses": "the walls were thick (Fig. 2A), but the old cells were lost (Fig. 2B), whereas ",
    "semicolons": "Fig. 2A; Fig. 3B; ",
    "PLOS": "S{} Fig, ",
    "list of panels": "A, ",
    "list without spaces": "A,B,",
    "number and panel": "2A, ",
    "range of panels": "A–Z, ",
    "range of figures": "Figs. 1–30, ",
    "range of numbers": "A1–A99, ",
    "places": "A, left and right–B, ",
    "respectively": "red and blue and green are shown in Fig. 2A and B, respectively, ",
    "respectively, alone": "respectively, ",
    "markers": "(A) ",
    "markers with text": "(A) Cells. (B) Mice grew. ",
    "all letters": "(A) x (B) y (C) z (D) u (E) v (F) w (G) s (H) t (I) r (J) q ",
    "marker ranges": "(A–Z) ",
    "behind": "walls (A), cells (B); ",
    "half brackets": "a) walls b) cells ",
    "lists behind": "Walls of mice (A) and of rats (B) are shown ",
    "nested letters": "(A) Walls. (a) Thin. (b) Thick. ",
    "positions": "(left) walls, (right) cells; ",
    "panel words": "panel A shows ",
    "opened": "(",
    "closed": ")",
    "pairs": "()",
    "pairs ended": "(x.) ",
    "sentences in brackets": "(Cells. Grew.) ",
    "square": "[1]",
    "points": ".",
    "points and spaces": ". ",
    "commas": ",",
    "spaces": " ",
    "newlines": "\n",
    "lines": "a\n",
    "formulas": "is x = 2,\nwhere ",
    "digits": "7",
    "letters": "A",
    "words": "cells ",
    "dashes": "–",
    "words and dashes": "x-",
    "combining": "a\u0301\u0301",
    "primes": "A′",
    "quotes": "”",
    "et al.": "Smith et al. (2010), ",
    "names": "Smith and Jones and ",
    "acronyms": "magnetic resonance imaging (MRI{}) and ",
    "acronym list": "MRI{}, magnetic resonance imaging; ",
    "acronym of many": "MRI: x-x-x-x-x-",
    "opened acronym": "(MRI ",
    "panels in brackets": "(A,B,C,D,E,F,G,H) and ",
}
"""Repeated pieces; ``{}`` is the number of the repetition."""

FIRST = ("", "Fig. 2", "(", "(A) ", "Abbreviations: MRI: ", "Figure 2A, left")
"""What may come before the repeated pieces."""


def repeated(unit: str, first: str, size: int) -> str:
    """Return a text of a given number of characters."""
    count = size // len(unit) + 1
    body = "".join(unit.replace("{}", str(n)) for n in range(count)) if "{}" in unit else ""
    return (first + (body or unit * count))[:size]


def nested(size: int) -> str:
    """Return nested brackets with a reference inside."""
    return "(" * (size // 2) + "Fig. 2A" + ")" * (size // 2)


_REFERENCE = re.compile(r"(?:Fig\. ?|Figure )?\d+[A-Z]?|[A-Z](?![a-z])")


def paragraph(content: str) -> Mention:
    """Return a paragraph in which everything that resembles a reference is a link."""
    found = _REFERENCE.finditer(content)
    links = [Reference(one.start(), one.end(), ["A"], False) for one in found]
    return Mention(content, links, [Span(link.end, link.end) for link in links], "body")


def _escaped(content: str) -> str:
    return content.replace("&", "&amp;").replace("<", "&lt;")


def article(content: str) -> bytes:
    """Return an article with a text as caption and as a paragraph with links to three figures."""
    number = 0

    def link(match: re.Match[str]) -> str:
        nonlocal number
        number += 1
        return f'<xref ref-type="fig" rid="f{number % 3}">{match[0]}</xref>'

    body = _REFERENCE.sub(link, _escaped(content))
    caption = re.sub(r"[A-Z](?![a-z])", r"<bold>\g<0></bold>", _escaped(content))
    figures = "".join(
        f'<fig id="f{n}"><label>Figure {n}</label><caption><p>{caption}</p></caption>'
        f'<graphic xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="f{n}"/></fig>'
        for n in range(3)
    )
    return f"<article><body><p>{body}</p>{figures}</body></article>".encode()


def article_of_figures(content: str) -> bytes:
    """Return an article in which each piece of a text is a figure of one group, all cited."""
    words = _escaped(content).split() or ["x"]
    links = "".join(f'<xref rid="f{n}">Fig. {n}</xref>, ' for n in range(len(words)))
    figures = "".join(
        f'<fig id="f{n}"><label>Figure {n}</label><caption><p>{word}</p></caption></fig>'
        for n, word in enumerate(words)
    )
    group = f'<xref rid="g">Figs</xref><fig-group id="g">{figures}</fig-group>'
    return f"<article><body><p>{links}</p><p>{group}</p></body></article>".encode()


def article_of_markup(content: str) -> bytes:
    """Return an article in which each piece of a text is an entity, a formula or a float."""
    m = 'xmlns:m="http://www.w3.org/1998/Math/MathML"'
    each = "".join(
        f"{word}&alpha;<inline-formula><inline-graphic/><tex-math>x</tex-math></inline-formula>"
        f"<inline-graphic/><m:mi>x</m:mi><fig><caption><p>{word}</p></caption></fig>"
        for word in _escaped(content).split()
    )
    words = _escaped(content).split()
    entities = "".join(f"{word}&alpha;" for word in words)
    floats = "".join(f"{word}<table-wrap/>" for word in words)
    sections = "<p>x<fig/></p>" * len(words)
    marks = "<bold/>" * len(words)
    label = (
        f"<fig><caption><p>Figure 1{marks} x</p></caption><label>Fig {content[:9]}</label></fig>"
    )
    head = f"<!DOCTYPE article SYSTEM 'x.dtd'><article {m}>"
    body = f"<p>{each}</p><p>{entities}</p><p>{floats}</p><sec>{sections}</sec>{label}"
    return f"{head}<body>{body}</body></article>".encode()


def read_rows(content: str) -> None:
    """Run what ``split/rows.py`` does with texts, for a figure with this caption and paragraph."""
    stored = [paragraph(content)]
    cited = citances(stored, "Fig. 2")
    bold = [Span(one.start(), one.end()) for one in re.finditer(r"\b[A-Z]\b", content)]
    split = split_caption(
        content, bold=bold, cited={rows._base(p) for c in cited for p in c.panels}
    )
    labels = split.labels()[:30]
    for label in labels:
        split.text_of(label)
        rows._mentions_of(label, cited, labels)
    rows._mentions_of("A", cited, ("A", "B"))
    if split.parts:
        rows._map_spans(content, rows._stretches(split, "A"), bold)


def bold_caption(content: str) -> None:
    """Split a caption in which all single letters are bold."""
    bold = [Span(one.start(), one.end()) for one in re.finditer(r"\b[A-Za-z]\b", content)]
    split_caption(content, bold=bold, italic=bold[::2], cited="AB", seen="CD")


def many_paragraphs(content: str) -> None:
    """Read each line of a text as a paragraph of its own."""
    citances([paragraph(line) for line in content.split(". ")], "Fig. 2")


ENTRIES: dict[str, Callable[[str], object]] = {
    "split_caption": split_caption,
    "split_caption, bold": bold_caption,
    "references": references,
    "statements": statements,
    "citances, linked": lambda content: citances([paragraph(content)], "Fig. 2"),
    "citances, unlinked": lambda content: citances([Mention(content, [], [], "body")], "Fig. 2"),
    "citances, no label": lambda content: citances([paragraph(content)], None),
    "citances, paragraphs": many_paragraphs,
    "mentions": lambda content: figure_references.panels_in(content, content),
    "sentences": sentences.sentences,
    "acronyms": lambda content: acronyms.acronyms_of([content]),
    "acronyms, listed": lambda content: acronyms.acronyms_of([], content),
    "rows": read_rows,
    "JATS": lambda content: read_article(article(content)),
    "JATS, figures": lambda content: read_article(article_of_figures(content)),
    "JATS, markup": lambda content: read_article(article_of_markup(content)),
    "text of marks": lambda content: text.without_marks(
        re.sub(r"[A-Z]", f"{text.REF}\\g<0>{text.REF_END}", content)
    ),
}


@dataclass(frozen=True)
class Measured:
    """One entry point on one kind of text."""

    entry: str
    kind: str
    seconds: tuple[float, ...]
    memory_mb: float
    failed: str | None = None

    @property
    def exponent(self) -> float:
        """Growth of the time from 2n on; 1 is linear."""
        first, last = max(self.seconds[1], 1e-3), max(self.seconds[-1], 1e-3)
        return log(last / first) / log(2 ** (len(self.seconds) - 2))


def _run(
    entry: str, content: str, memory_mb: int, answer: "multiprocessing.connection.Connection"
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    failed = None
    try:
        ENTRIES[entry](content)
    except Exception as error:  # What the table reports.
        failed = f"{type(error).__name__}: {error}"[:80]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer.send((time.process_time() - start, (after - before) / 1024, failed))


def measured(
    entry: str, kind: str, content: Callable[[int], str], start: int, limit_s: float
) -> Measured:
    """Return times and memory of an entry point at n, 2n, 4n and 8n characters."""
    context = multiprocessing.get_context("fork")
    seconds: list[float] = []
    memory_mb, failed = 0.0, None
    for size in (start, 2 * start, 4 * start, 8 * start):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(entry, content(size), 4_000, sending))
        process.start()
        sending.close()
        try:
            if not receiving.poll(limit_s):
                seconds.append(limit_s)
                break
            spent, memory_mb, failed = receiving.recv()
            seconds.append(spent)
        except EOFError:
            failed = "killed"
        finally:
            process.kill()
            process.join()
        if failed:
            break
    while len(seconds) < 3:
        seconds.append(seconds[-1] if seconds else 0.0)
    return Measured(entry, kind, tuple(seconds), memory_mb, failed)


def kinds(count: int, seed: int) -> dict[str, Callable[[int], str]]:
    """Return the kinds of text: name to a function from a size in characters to the text."""
    made: dict[str, Callable[[int], str]] = {"nested": nested}
    for name, unit in UNITS.items():
        made[name] = lambda size, unit=unit: repeated(unit, "", size)
        made[f"Fig. 2, {name}"] = lambda size, unit=unit: repeated(unit, "Fig. 2", size)
    rng = random.Random(seed)
    pieces = [
        *UNITS.values(),
        *"AaiBb12.,;:-–()[]'= ",
        "Fig. ",
        "Figs ",
        "and ",
        "to ",
        "left",
        "S",
    ]
    for number in range(count):
        unit = "".join(rng.choices(pieces, k=rng.randint(1, 5)))
        first = rng.choice(FIRST)
        made[f"{number}: {first!r} {unit!r}"] = lambda size, u=unit, f=first: repeated(u, f, size)
    for number in range(count // 4):

        def shuffled(size: int, number: int = number) -> str:
            own = random.Random(f"{seed} {number}")
            chosen = own.sample(pieces, k=own.randint(2, 12))
            return "".join(own.choices(chosen, k=size))[:size].replace("{}", "1")

        made[f"{number}: shuffled"] = shuffled
    return made


def main() -> None:
    """Print one row per entry point, and one for each text that is worse than linear."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", type=int, default=4_000, help="n, in characters")
    parser.add_argument("--random", type=int, default=20, help="number of random texts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds per run")
    parser.add_argument("--only", default="", help="part of the names of entry points")
    args = parser.parse_args()
    texts = kinds(args.random, args.seed)
    print("| entry point | text | s at 8n | exponent | MB |\n|---|---|---|---|---|")
    for entry in ENTRIES:
        if args.only not in entry:
            continue
        every = [measured(entry, kind, texts[kind], args.start, args.limit) for kind in texts]
        worst = max(every, key=lambda one: (bool(one.failed), one.seconds[-1]))
        bad = [
            one
            for one in every
            if one.failed or one.memory_mb > 300 or (one.exponent > 1.35 and one.seconds[-1] > 0.1)
        ]
        for mark, one in [("", worst), *(("! ", one) for one in bad)]:
            shown = one.failed or f"{one.exponent:.2f}"
            print(
                f"| {mark}{entry} | {one.kind} | {one.seconds[-1]:.2f} | {shown} "
                f"| {one.memory_mb:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
