"""How well compound figures are taken apart: panels, labels, captions, citances, and baselines.

    python benchmarks/compound.py --shared ../shared/data --out /tmp/compound
    python benchmarks/compound.py --figures 0 --gold DIR          # figures of your own
    python benchmarks/compound.py write FOLDER                    # drawn figures with their truth
    python benchmarks/compound.py score FOLDER PREDICTIONS.jsonl  # those of another method

Sets: drawn figures (``biovl.sample.compound``), hand-made cases of published figures (``--shared``:
``cases`` and ``benchmarks/gold``), and folders in the same form (``--gold``). Each has one row per
method; ours has one per fold of articles as well. With ``--out`` the tables are written there, and
pictures of the figures that fail, by what is wrong: true panels green, found ones red.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import compound_cases as cases
import compound_methods as methods
import compound_scores as scores
from compound_cases import Case
from compound_methods import Method, Prediction
from compound_scores import Metric, Scored
from PIL import Image, ImageDraw

from biovl.images.labels.reading import read_labels
from biovl.sample.compound.strata import STRATA

GOLD = Path(__file__).parent / "gold"
_CELL_PX, _PICTURES = 420, 16
Failed = list[tuple[Case, Prediction, Scored]]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("--shared", type=Path, help="folder with cases/, packages/ and nxml.tar.gz")
    parser.add_argument("--gold", type=Path, nargs="*", default=[], help="folders of cases")
    parser.add_argument("--figures", type=int, default=20, help="drawn for each stratum")
    parser.add_argument("--strata", nargs="+", default=list(STRATA), choices=STRATA)
    parser.add_argument("--sets", nargs="+", help="cases, zou or names of folders; all of them")
    parser.add_argument("--by", default="fold", choices=("fold", "publisher"))
    parser.add_argument("--detector", default="", help="of train_detector; none: no detector")
    parser.add_argument("--exsclaim", type=Path, help="checkout of MaterialEyes/exsclaim")
    parser.add_argument("--ours-only", action="store_true", help="leave out the baselines")
    parser.add_argument("--resamples", type=int, default=1000, help="of articles; 0: no intervals")
    parser.add_argument("--out", type=Path, help="folder for the tables and pictures")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("write").add_argument("folder", type=Path)
    score = commands.add_parser("score")
    score.add_argument("folder", type=Path)
    score.add_argument("predictions", type=Path)
    options = parser.parse_args()
    if options.command == "write":
        print(cases.write(_drawn(options), options.folder), "figures")
        return
    failed: Failed = []
    sections = list(_sections(options, failed))
    head = f"compound figures, version {cases.VERSION}, drawn from seed {cases.FIRST_SEED}"
    text = "\n\n".join(filter(None, [head, *sections]))
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "compound.md").write_text(text + "\n")
        pictures(failed, options.out)


class _Plain(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    pass


def _sections(options: argparse.Namespace, failed: Failed) -> Iterator[str]:
    """Yield the tables."""
    if options.command == "score":
        other = methods.from_file(options.predictions)
        articles = cases.Articles(None)
        yield from _figures(options, {options.predictions.stem: other}, articles, failed)
        return
    propose = _detector(options.detector)
    named: dict[str, Method] = {
        "biovl": methods.ours(propose),
        "biovl, one label unread": methods.one_label_unread(propose),
    }
    if not options.ours_only:
        named["X-Y cut"] = methods.xy_cut
        if propose:
            named["detector alone"] = methods.detector(propose)
    articles = cases.Articles(options.shared)
    yield from _figures(options, named, articles, failed)
    if options.shared or options.gold:
        yield from _captions(options, articles)
        yield _citances(options, articles)


def _detector(folder: str) -> methods.Propose | None:
    """Return the detector of a folder; without one the detector that biovl includes."""
    if folder == "none":
        return None
    from biovl.split.detector.detector import Detector

    return (Detector.load(folder) if folder else Detector.builtin()).propose


def _drawn(options: argparse.Namespace) -> Iterator[Case]:
    for stratum in options.strata:
        yield from cases.drawn(stratum, options.figures)


def _folders(options: argparse.Namespace) -> list[Path]:
    if options.command == "score":
        return [options.folder]
    ours = (GOLD, GOLD / "random")
    return [*(ours if options.shared and GOLD.exists() else ()), *options.gold]


def _figures(
    options: argparse.Namespace,
    named: Mapping[str, Method],
    articles: cases.Articles,
    failed: Failed,
) -> Iterator[str]:
    real: list[Iterable[Case]] = [cases.read_shared(options.shared)] if options.shared else []
    real += [cases.read(folder, articles) for folder in _folders(options)]
    every = (case for one in real for case in one if _is_wanted(case, options))
    found = [of for case in every for of in _of_case(case, named, failed, options.by)]
    if found:
        yield "Figures\n\n" + _panels(found, options.resamples)
        yield _labels(found, options.resamples)
    if options.figures and options.command is None:
        drawn = [of for case in _drawn(options) for of in _of_case(case, named, failed, options.by)]
        yield "Drawn figures\n\n" + _panels(drawn, 0)
        yield _labels(drawn, 0)
        found += drawn
    sets = scores.grouped((group, one) for group, name, one in found if name == next(iter(named)))
    for name, one in sets.items():
        if "," not in name and name not in STRATA:
            head = ["confidence", "cut", "share cut", "share right", "what is wrong"]
            yield f"By confidence: {name}\n\n" + markdown(head, scores.reliability(one))


def _groups(case: Case | cases.CaptionCase | cases.CitanceCase, by: str, method: str) -> list[str]:
    """Return the set of a case and, for ours, the part of it by fold or publisher."""
    if case.set in STRATA:
        return [case.set, "all drawn"]
    part = f"fold {cases.fold_of(case.article)}" if by == "fold" else case.publisher or "unknown"
    return [case.set, f"{case.set}, {part}"] if method == "biovl" else [case.set]


def _is_wanted(
    case: Case | cases.CaptionCase | cases.CitanceCase, options: argparse.Namespace
) -> bool:
    return not options.sets or case.set in options.sets


def _of_case(
    case: Case, named: Mapping[str, Method], failed: Failed, by: str
) -> Iterator[tuple[str, str, Scored]]:
    """Yield group, method and scores of a figure."""
    for number, (name, method) in enumerate(named.items()):
        prediction = method(case)
        if prediction is None:
            continue
        one = scores.scored(case, prediction)
        values = {**one.values, "figures": 1}
        if number == 0:
            if name == "biovl" and one.is_compound:
                for how, labels in (("told", case.labels), ("untold", ())):
                    read = read_labels(case.pixels, expected=labels)
                    values |= scores.label_values(how, read, case.panels)
            if one.wrong:
                failed.append((case, prediction, one))
        one = replace(one, values=values)
        for group in _groups(case, by, name):
            yield group, name, one


def _panels(found: Sequence[tuple[str, str, Scored]], resamples: int) -> str:
    return _table(found, scores.PANELS, resamples, count="figures")


def _labels(found: Sequence[tuple[str, str, Scored]], resamples: int) -> str:
    mine = [one for one in found if one[1] == "biovl"]
    if not mine:
        return ""
    return "Printed labels\n\n" + _table(mine, scores.LABELS, resamples, count="told true")


def _table(
    found: Sequence[tuple[str, str, Scored]],
    metrics: Mapping[str, Metric],
    resamples: int,
    *,
    count: str,
) -> str:
    """Return a row per group and method."""
    table = []
    for group, ones in scores.grouped(
        (f"{group}|{name}", one) for group, name, one in found
    ).items():
        many = sum(one.values.get(count, 0) for one in ones)
        drawn_again = 0 if ", " in group else resamples
        row = [scores.cell(ones, metric, resamples=drawn_again) for metric in metrics.values()]
        table.append([*group.split("|"), f"{many:.0f}", *row])
    return markdown(
        ["set", "method", count.removeprefix("told ").replace("true", "labels"), *metrics],
        sorted(table, key=lambda row: row[:1]),
    )


def _captions(options: argparse.Namespace, articles: cases.Articles) -> Iterator[str]:
    every: list[cases.CaptionCase] = []
    if options.shared:
        every += cases.read_captions(options.shared / "cases", articles)
        every += cases.read_zou(options.shared / "cases")
    for folder in _folders(options):
        every += cases.read_captions(folder, articles)
    named: dict[str, methods.CaptionMethod] = {"biovl": methods.our_caption}
    if not options.ours_only:
        named["whole caption"] = methods.whole_caption
        if options.exsclaim:
            named["EXSCLAIM"] = methods.exsclaim(options.exsclaim)
    found = []
    sure: list[tuple[str, Scored]] = []
    for case in (case for case in every if _is_wanted(case, options)):
        for name, method in named.items():
            start = time.process_time()
            texts, own = method(case)
            spent = 1000 * (time.process_time() - start)
            values = {**scores.caption_values(case, texts, own), "cpu_ms": spent}
            one = scores.plain(case.article, values)
            found += [(group, name, one) for group in _groups(case, options.by, name)]
            if name == "biovl" and case.own:
                wrong = "" if values["whole"] else "words"
                confidence = methods.caption_confidence(case)
                whole = replace(one, is_compound=True, confidence=confidence, wrong=wrong)
                sure.append((case.set, whole))
    table = _table(found, scores.CAPTIONS, options.resamples, count="captions")
    yield f"Captions\n\n{table}"
    for name, ones in scores.grouped(sure).items():
        head = ["confidence", "split", "share split", "share right", "what is wrong"]
        yield f"Captions by confidence: {name}\n\n" + markdown(head, scores.reliability(ones))


def _citances(options: argparse.Namespace, articles: cases.Articles) -> str:
    every: list[cases.CitanceCase] = []
    for folder in [*([options.shared / "cases"] if options.shared else []), *_folders(options)]:
        every += cases.read_citances(folder, articles)
    named: dict[str, Callable[[str], methods.Cited]] = {"biovl": methods.grammar}
    if not options.ours_only:
        named["plain pattern"] = methods.plain_pattern
    found = []
    for case in (case for case in every if _is_wanted(case, options)):
        for name, method in named.items():
            values = scores.counts_of(method(case.sentence), case.cited)
            one = scores.plain(case.article, values)
            found += [(group, name, one) for group in _groups(case, options.by, name)]
    return "Citances\n\n" + _table(found, scores.CITANCES, options.resamples, count="sentences")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def pictures(failed: Failed, out: Path) -> None:
    """Draw the figures that fail on one sheet per kind, and list them all in ``failed.md``."""
    lines = []
    for kind in scores.KINDS:
        ones = [one for one in failed if one[2].wrong == kind]
        # Published figures first; of drawn ones, some of each stratum.
        ones.sort(key=lambda one: (one[0].set in STRATA, one[0].name.rpartition("-")[2]))
        for case, prediction, _ in ones:
            confidence = f"{prediction.confidence:.2f}"
            lines.append([kind, case.set, case.name, confidence, prediction.note])
        shown = ones[:_PICTURES]
        if not shown:
            continue
        sheet = Image.new("RGB", (_CELL_PX * 4, _CELL_PX * (-(-len(shown) // 4))), "white")
        for number, (case, prediction, _) in enumerate(shown):
            at = _CELL_PX * (number % 4), _CELL_PX * (number // 4)
            sheet.paste(_drawn_over(case, prediction), at)
        sheet.save(out / f"failed_{kind.replace(' ', '_')}.png")
    table = markdown(["wrong", "set", "figure", "confidence", "why"], lines)
    (out / "failed.md").write_text(table + "\n")


def _drawn_over(case: Case, found: Prediction) -> Image.Image:
    height, width = case.pixels.shape[:2]
    scale = (_CELL_PX - 24) / max(height, width)
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    cell = Image.new("RGB", (_CELL_PX, _CELL_PX), "white")
    cell.paste(Image.fromarray(case.pixels).resize(size))
    pen = ImageDraw.Draw(cell)
    for panels, colour, line in ((case.panels, "lime", 4), (found.panels, "red", 2)):
        for panel in panels:
            box = panel.box.scaled(scale)
            pen.rectangle((box.x0, box.y0, box.x1 - 1, box.y1 - 1), outline=colour, width=line)
            across = (box.x0 + 3 if colour == "red" else box.x1 - 16, box.y0 + 2)
            pen.text(across, panel.label or "–", fill=colour, stroke_width=1, stroke_fill="black")
    pen.text((2, _CELL_PX - 16), f"{case.name} {found.confidence:.2f}", fill="black")
    return cell


if __name__ == "__main__":
    main()
