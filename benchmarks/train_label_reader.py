"""Train the reader of panel labels from the typefaces on this machine, in under a minute.

    python benchmarks/train_label_reader.py                  # writes the weights the package ships
    python benchmarks/train_label_reader.py --out other.npz

Pages of letters are drawn in many sizes, on white, black and photographs, damaged as JPEG does,
and cut into marks by the very code that reads figures. What is no letter is learned from the
photographs themselves, from arrows and symbols, and from letters that touch.
"""

import argparse
import io
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn

from biovl.images.labels.marks import SIDE, find_words, patches
from biovl.images.labels.network import CHARACTERS, WEIGHTS, Network, save
from biovl.sample.compound.contents import TYPEFACES, photograph, typeface
from biovl.sample.compound.labels import has, mask_of, size_for

NOTHING = len(CHARACTERS)
_SYSTEM = Path("/usr/share/fonts/truetype/liberation")
"""Metrically Arial, Times and Courier: what most figures are set in. Used where they are."""
_CELL = 64


def typefaces() -> list[Path]:
    """Return matplotlib's typefaces, and the system's Liberation where they are installed."""
    own = [typeface(name) for name in TYPEFACES]
    sans = sorted(_SYSTEM.glob("LiberationSans*.ttf"))
    # Labels are sans serif, and mostly bold.
    return own + sans * 2 + sorted(_SYSTEM.glob("LiberationSerif*.ttf"))


def page(rng: np.random.Generator, faces: list[Path]) -> tuple[np.ndarray, np.ndarray, str]:
    """Return a grey page of characters, the boxes around them, and which they are.

    Returns:
        Grey, uint8, [H, W]; boxes x0, y0, x1, y1, [N, 4]; N characters, ``?`` for no character.
    """
    columns, rows = 14, 10
    size = (columns * _CELL, rows * _CELL)
    sheet = _background(rng, size)
    boxes, truth = [], ""
    shrink = float(rng.choice((1.0, rng.uniform(1.2, 2.2)), p=(0.6, 0.4)))
    capital = float(np.exp(rng.uniform(np.log(7.5 * shrink), np.log(34))))
    for cell in range(columns * rows):
        face = faces[int(rng.integers(len(faces)))]
        x0, y0 = cell % columns * _CELL, cell // columns * _CELL
        kind = int(rng.integers(12))
        words = CHARACTERS[int(rng.integers(len(CHARACTERS)))]
        if kind == 0:  # two that touch, or nearly
            words += CHARACTERS[int(rng.integers(52))]
        if not has(face, words):
            face = faces[1]
        ink = mask_of(words, face, size_for(face, capital * float(rng.uniform(0.8, 1.25))))
        if kind == 1:
            ink, words = _symbol(rng, int(capital)), "??"
        # Typefaces narrower and wider than those at hand.
        stretched = max(round(ink.shape[1] * float(rng.uniform(0.72, 1.2))), 1)
        ink = np.asarray(Image.fromarray(ink).resize((stretched, len(ink))))
        tall, wide = ink.shape
        if wide > _CELL - 6 or tall > _CELL - 6:
            continue
        x = x0 + int(rng.integers(3, _CELL - wide - 2))
        y = y0 + int(rng.integers(3, _CELL - tall - 2))
        under = np.asarray(sheet.crop((x, y, x + wide, y + tall)), np.float32).mean()
        tone = rng.integers(150, 256) if under < 100 else rng.integers(0, 100)
        tone = 255 if 100 <= under < 150 else int(tone)
        if rng.integers(2):
            tone = 255 if tone > 128 else 0
        sheet.paste(tone, (x, y), Image.fromarray(ink))
        if len(words) == 1 or words == "??":
            boxes.append((x, y, x + wide, y + tall))
            truth += words[0]
        else:  # may be cut anywhere between the two
            boxes.append((x, y, x + wide, y + tall))
            truth += "!"
    corners, grey = np.array(boxes, float), _damaged(rng, sheet)
    if shrink > 1:
        size = round(sheet.width / shrink), round(sheet.height / shrink)
        grey = np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.BOX))
    return grey, corners / shrink, truth


def _background(rng: np.random.Generator, size: tuple[int, int]) -> Image.Image:
    kind = int(rng.integers(5))
    if kind < 2:
        return Image.new("L", size, 255 if rng.integers(3) else int(rng.integers(180, 256)))
    if kind == 2:
        return Image.new("L", size, int(rng.integers(0, 110)))
    sheet = Image.new("L", size, 255)
    for x in range(0, size[0], size[0] // 2):
        for y in range(0, size[1], size[1] // 2):
            part, _ = photograph(rng, size[0] // 2, size[1] // 2)
            sheet.paste(Image.fromarray(part).convert("L"), (x, y))
    return sheet


def _symbol(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return an arrow, a star, a circle, a square, a cross or a piece of a line, as ink."""
    side = max(size, 6) + 4
    sheet = Image.new("L", (side, side), 0)
    draw, width = ImageDraw.Draw(sheet), max(1, size // 7)
    low, high, middle = 2, side - 3, side // 2
    match int(rng.integers(8)):
        case 0:
            draw.line((low, middle, high, middle), 255, width)
            draw.polygon((high, middle, middle, low, middle, high), 255)
        case 1:
            draw.polygon(
                (middle, low, high, high, low, high), 255 if rng.integers(2) else None, 255
            )
        case 2:
            draw.rectangle((low, low, high, high), 255 if rng.integers(2) else None, 255, width)
        case 3:
            draw.ellipse((low, low, high, high), 255)
        case 4:
            draw.line((low, middle, high, middle), 255, width)
            draw.line((middle, low, middle, high), 255, width)
        case 5:
            draw.line((low, low, middle, high, high, middle), 255, width)
        case 6:
            draw.line((low, low, low, high, high, high), 255, width)
        case _:
            draw.arc(
                (low, low, high, high), int(rng.integers(360)), int(rng.integers(360)), 255, width
            )
    turned = sheet.rotate(int(rng.integers(4)) * 90)
    ink = np.asarray(turned)
    lines, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    if not len(lines):
        return np.full((side, side), 255, np.uint8)
    return ink[lines[0] : lines[-1] + 1, columns[0] : columns[-1] + 1]


def _damaged(rng: np.random.Generator, sheet: Image.Image) -> np.ndarray:
    """Return a page as it is read: perhaps blurred, coded as JPEG, or printed larger and shrunk."""
    if rng.integers(3) == 0:
        sheet = sheet.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 0.9))))
    if rng.integers(3):
        file = io.BytesIO()
        sheet.save(file, "JPEG", quality=int(rng.integers(35, 96)))
        sheet = Image.open(file)
    return np.asarray(sheet.convert("L"))


def examples(rng: np.random.Generator, pages: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield patches, widths over heights, and classes of the marks of some pages."""
    faces = typefaces()
    for number in range(pages):
        if number % 5 == 4:  # what a figure holds besides letters; photographs hold none
            grey = np.asarray(Image.fromarray(photograph(rng, 500, 500)[0]).convert("L"))
            boxes, truth = np.zeros((0, 4)), ""
        else:
            grey, boxes, truth = page(rng, faces)
        for is_dark in (True, False):
            marks, _ = find_words(grey, is_dark=is_dark)
            classes = _classes(marks.boxes.astype(float), boxes.astype(float), truth)
            keep = np.flatnonzero(classes >= 0)
            # Grain is everywhere and teaches little.
            nothing = keep[classes[keep] == NOTHING]
            spared = rng.permutation(nothing)[:120]
            keep = np.concatenate([keep[classes[keep] != NOTHING], spared])
            wide = marks.boxes[:, 2] - marks.boxes[:, 0]
            tall = marks.boxes[:, 3] - marks.boxes[:, 1]
            if len(keep):
                ink = patches(grey, marks)
                yield ink[keep], (wide / tall)[keep], classes[keep]


def _classes(found: np.ndarray, boxes: np.ndarray, truth: str) -> np.ndarray:
    """Return the class of each box found, -1 where it is none to learn from. Shape [N]."""
    classes = np.full(len(found), NOTHING)
    if not len(boxes) or not len(found):
        return classes
    low = np.maximum(found[:, None, :2], boxes[None, :, :2])
    high = np.minimum(found[:, None, 2:], boxes[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    areas = np.prod(found[:, 2:] - found[:, :2], axis=1)[:, None]
    theirs = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)[None]
    ious = shared / (areas + theirs - shared)
    best, value = ious.argmax(1), ious.max(1)
    for i, (at, iou) in enumerate(zip(best, value, strict=True)):
        if iou > 0.72:
            known = CHARACTERS.find(truth[at])
            classes[i] = known if known >= 0 else NOTHING
        elif shared[i].max() / areas[i, 0] > 0.5 and (iou > 0.25 or truth[at] == "!"):
            classes[i] = -1  # a piece of a letter, which may look like another
    return classes


def train(seed: int = 0, *, pages: int = 280, hidden: int = 160, epochs: int = 14) -> Network:
    """Return a network trained on drawn pages; the same seed and fonts give the same one."""
    rng = np.random.default_rng(seed)
    parts = list(examples(rng, pages))
    ink = np.concatenate([part[0] for part in parts]).reshape(-1, SIDE * SIDE)
    aspects = np.minimum(np.concatenate([part[1] for part in parts]), 2)
    inputs = torch.from_numpy(np.column_stack([ink, aspects]).astype(np.float32))
    classes = torch.from_numpy(np.concatenate([part[2] for part in parts]).astype(np.int64))
    torch.manual_seed(seed)
    layers = nn.Sequential(
        nn.Linear(SIDE * SIDE + 1, hidden), nn.ReLU(), nn.Linear(hidden, NOTHING + 1)
    )
    optimizer = torch.optim.AdamW(layers.parameters(), lr=2e-3, weight_decay=1e-3)
    batch = 256
    steps = epochs * (len(inputs) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=max(steps, 1))
    for step in range(steps):
        if step % (len(inputs) // batch) == 0:
            order = torch.randperm(len(inputs))
        at = order[step % (len(inputs) // batch) * batch :][:batch]
        loss = nn.functional.cross_entropy(
            layers(inputs[at] * (torch.rand(batch, 1) * 0.3 + 0.85)),
            classes[at],
            label_smoothing=0.02,
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    first, second = layers[0], layers[2]
    return Network(
        np.vstack([first.weight.detach().numpy().T, first.bias.detach().numpy()]),
        np.vstack([second.weight.detach().numpy().T, second.bias.detach().numpy()]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    network = train(args.seed)
    args.out.write_bytes(save(network))
    print(f"{args.out}: {args.out.stat().st_size // 1000} kB, {time.process_time() - began:.0f} s")
    right = total = real = nothing = 0
    for ink, aspects, classes in examples(np.random.default_rng(args.seed + 1), 20):
        read = network.read(ink, aspects).argmax(1)
        letters = classes != NOTHING
        right, total = right + int((read == classes)[letters].sum()), total + int(letters.sum())
        real += int((read == classes)[~letters].sum())
        nothing += int((~letters).sum())
    print(
        f"of unseen letters {right / total:.3f} read; of other marks {real / nothing:.3f} refused"
    )


if __name__ == "__main__":
    main()
