"""Synthetic microscopy and gel panels: procedural, or crops of scikit-image's own images.

Only images inside scikit-image's wheel are used; nothing is downloaded.
"""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw
from skimage import color, transform

from biovl.sample.canvas import (
    HEIGHT,
    WIDTH,
    X,
    Y,
    blur,
    bundled,
    crop,
    ellipse,
    noise,
    to_rgb,
    with_scale_bar,
)
from biovl.sample.words import PanelContent, Rng, Topic, count, font, pick


def histology(topic: Topic, rng: Rng) -> PanelContent:
    """Draw stained tissue, glandular or solid."""
    stain, ground, fibre, nucleus, tint, tint_es = pick(
        rng,
        (
            ("haematoxylin and eosin", (0.93, 0.70, 0.80), (0.85, 0.50, 0.66), (0.33, 0.18, 0.50),
             "pink", "rosa"),
            ("Masson’s trichrome", (0.80, 0.40, 0.42), (0.35, 0.50, 0.80), (0.30, 0.12, 0.25),
             "red and blue", "rojo y azul"),
            ("periodic acid–Schiff", (0.92, 0.80, 0.88), (0.75, 0.20, 0.55), (0.30, 0.25, 0.55),
             "magenta", "magenta"),
        ),
    )  # fmt: skip
    glandular, dense = bool(rng.integers(2)), bool(rng.integers(2))
    fibres = np.clip(noise(rng, 6) * 0.5 + noise(rng, 1.2) * 0.12 + 0.4, 0, 1)[..., None]
    image = np.array(ground) * (1 - fibres) + np.array(fibre) * fibres
    seeds = rng.random((HEIGHT, WIDTH)) < (0.012 if dense else 0.004)
    if glandular:
        distance = np.full((HEIGHT, WIDTH), 1e3)
        for x, y in rng.uniform((0, 0), (WIDTH, HEIGHT), (7, 2)):
            radius = rng.uniform(22, 38)
            stretched = np.hypot((X - x) * rng.uniform(0.7, 1.2), Y - y) + noise(rng, 9) * 2
            distance = np.minimum(distance, stretched - radius)
        image[distance < -4] = (0.97, 0.95, 0.97)
        seeds &= distance > 12
        seeds |= (np.abs(distance - 4) < 4) & (
            rng.random((HEIGHT, WIDTH)) < (0.03 if dense else 0.018)
        )
    nuclei = blur(seeds.astype(np.float32), (2.0, 2.3)) > 0.011
    image[nuclei] = np.array(nucleus) + rng.normal(0, 0.04, (int(nuclei.sum()), 1))
    image = blur(image + rng.normal(0, 0.02, (HEIGHT, WIDTH, 1)), (0.7, 0.7, 0))
    pattern = "round glands with white lumina" if glandular else "solid sheets of cells"
    nuclei_word = "densely packed" if dense else "sparse"
    return PanelContent(
        with_scale_bar(to_rgb(image), 0),
        f"Histology of the {topic.organ} in {topic.disease}",
        f"{stain} staining of a section of {topic.organ}, {tint}, with {nuclei_word} nuclei",
        f"The tissue forms {pattern}; nuclei are {nuclei_word}. Scale bar, 100 μm.",
        f"corte de {topic.organ_es} teñido de {tint_es} con "
        f"{'glándulas' if glandular else 'células en láminas sólidas'}",
    )


def immunohistochemistry(topic: Topic, rng: Rng) -> PanelContent:
    """Crop the bundled image of DAB-stained colon, with a weak, moderate or strong stain."""
    strength, words, words_es = pick(
        rng, ((0.25, "weak", "débil"), (1.0, "moderate", "moderada"), (1.9, "strong", "intensa"))
    )
    photo = crop(bundled("immunohistochemistry"), rng, (0.45, 1.0))
    photo = photo[:: pick(rng, (1, -1)), :: pick(rng, (1, -1))]
    stains = color.rgb2hed(photo)
    stains[..., 2] *= strength
    return PanelContent(
        with_scale_bar(to_rgb(color.hed2rgb(stains)), 0),
        f"{words.capitalize()} expression of {topic.gene} in glandular epithelium",
        f"immunohistochemistry of {topic.gene} in colonic glands with {words} brown staining",
        "Brown, diaminobenzidine (DAB); blue, haematoxylin counterstain. Scale bar, 50 μm.",
        f"inmunohistoquímica de {topic.gene} con tinción marrón {words_es} en glándulas del colon",
    )


def fluorescence(topic: Topic, rng: Rng) -> PanelContent:
    """Draw nuclei and one labelled protein outside them: filaments, spots or diffuse signal."""
    name, name_es, tint = pick(
        rng,
        (
            ("green", "verde", (0.1, 1, 0.2)),
            ("red", "rojo", (1, 0.15, 0.1)),
            ("magenta", "magenta", (1, 0.1, 0.9)),
            ("yellow", "amarillo", (1, 0.9, 0.1)),
        ),
    )
    cells = int(pick(rng, (4, 12, 40)))
    pattern = pick(rng, ("filaments", "spots", "a diffuse cytoplasmic signal"))
    size = 30 / np.sqrt(cells / 4)
    nuclei, body = np.zeros((HEIGHT, WIDTH)), np.zeros((HEIGHT, WIDTH))
    for x, y in rng.uniform((15, 15), (WIDTH - 15, HEIGHT - 15), (cells, 2)):
        angle = rng.uniform(0, 3.1)
        nuclei = np.maximum(nuclei, ellipse(x, y, size, size * 0.75, angle) * rng.uniform(0.6, 1))
        body = np.maximum(body, ellipse(x, y, size * 2.4, size * 1.7, angle))
    texture = {
        "filaments": np.clip(1 - np.abs(noise(rng, 3)) * 4, 0, 1),
        "spots": blur((rng.random((HEIGHT, WIDTH)) < 0.006).astype(float), 1.4) * 9,
        "a diffuse cytoplasmic signal": 0.5 + 0.12 * noise(rng, 2),
    }[pattern]
    protein = np.clip(blur(body, 3) * texture, 0, 1) * (1 - 0.7 * (nuclei > 0))
    image = blur(nuclei * (0.85 + 0.1 * noise(rng, 2)), 1)[..., None] * (0.15, 0.3, 1)
    image = image + protein[..., None] * tint + np.abs(rng.normal(0, 0.015, (HEIGHT, WIDTH, 1)))
    number = {4: "few large", 12: "a dozen", 40: "many small"}[cells]
    number_es = {4: "pocas", 12: "una docena de", 40: "muchas"}[cells]
    return PanelContent(
        with_scale_bar(to_rgb(image), 255),
        f"{topic.gene} localises outside the nucleus in {topic.cells}",
        f"fluorescence micrograph of {number} {topic.cells} stained for {topic.gene} ({name})",
        f"{topic.gene} appears as {pattern} ({name}); nuclei are blue (DAPI). Scale bar, 20 μm.",
        f"microscopía de fluorescencia de {number_es} células con {topic.gene} en {name_es} y "
        "núcleos en azul",
    )


def phase_image(topic: Topic, rng: Rng) -> PanelContent:
    """Crop the bundled quantitative phase image, in grey or pseudo-colour."""
    cell = bundled("cell")
    angle = float(rng.integers(360))
    turned = transform.rotate(cell, angle, mode="reflect", preserve_range=True)  # type: ignore[no-untyped-call]
    y, x = np.unravel_index(np.argmax(blur(turned.astype(float), 25)), turned.shape)
    around = np.pad(turned, 170, mode="reflect")[y : y + 340, x : x + 340]
    photo = crop(around, rng, (0.8, 1.0)) / 255
    name, name_es, low, high = pick(
        rng,
        (
            ("grey scale", "escala de grises", (0, 0, 0), (1, 1, 1)),
            ("orange pseudo-colour", "falso color naranja", (0.1, 0, 0), (1, 0.7, 0.1)),
            ("blue pseudo-colour", "falso color azul", (0, 0, 0.1), (0.4, 0.9, 1)),
        ),
    )
    image = np.array(low) + photo[..., None] * (np.array(high) - np.array(low))
    return PanelContent(
        with_scale_bar(to_rgb(image), 255),
        f"Phase map of a cell treated with {topic.drug}",
        f"quantitative phase image of a single cell floating in saline ({name})",
        "Brighter pixels are optically thicker. Scale bar, 10 μm.",
        f"imagen cuantitativa de fase de una sola célula ({name_es})",
    )


def electron_micrograph(topic: Topic, rng: Rng) -> PanelContent:
    """Draw mitochondria, with or without their cristae."""
    number, swollen = int(rng.integers(2, 9)), bool(rng.integers(2))
    image = 0.66 + 0.05 * noise(rng, 1) + 0.05 * noise(rng, 5)
    # Positions on a grid, so that the mitochondria can be counted.
    places = rng.permutation(12)[:number]
    for place in places:
        x = 45 + 90 * (place % 4) + rng.uniform(-8, 8)
        y = 47 + 93 * (place // 4) + rng.uniform(-8, 8)
        angle = rng.uniform(0, 3.1)
        rx, ry = (36, 32) if swollen else (40, 19)
        body, rim = ellipse(x, y, rx - 4, ry - 4, angle), ellipse(x, y, rx, ry, angle)
        along = (X - x) * np.cos(angle) + (Y - y) * np.sin(angle)
        image[rim] = 0.18
        image[body] = 0.8 if swollen else (0.42 + 0.2 * (np.sin(along * 0.95) > 0.1))[body]
    image = blur(image, 0.8) + rng.normal(0, 0.03, (HEIGHT, WIDTH))
    state = "swollen and pale, without cristae" if swollen else "elongated and dark, with cristae"
    return PanelContent(
        with_scale_bar(to_rgb(image), 0),
        f"Mitochondria of the {topic.organ} are {'swollen' if swollen else 'intact'} after "
        f"{topic.drug}",
        f"transmission electron micrograph of {topic.organ} with {count(number)} mitochondria",
        f"Mitochondria are {state}. Scale bar, 500 nm.",
        f"microscopía electrónica de {topic.organ_es} con {number} mitocondrias "
        f"{'hinchadas y pálidas' if swollen else 'alargadas y oscuras'}",
    )


def western_blot(topic: Topic, rng: Rng) -> PanelContent:
    """Draw immunoblot bands of a protein and its loading control."""
    lanes, fades = int(rng.integers(3, 8)), bool(rng.integers(2))
    strength = np.linspace(0.95, 0.12, lanes) if fades else np.linspace(0.12, 0.95, lanes)
    image = np.full((HEIGHT, WIDTH), 0.9) + 0.015 * noise(rng, 20)
    step = 250 / lanes
    for row, levels in ((105, strength), (195, np.full(lanes, 0.85))):
        for i, level in enumerate(levels):
            x = 100 + step * (i + 0.5)
            # Powers take long, and further away a band is zero.
            near = slice(row - 32, row + 120), slice(max(0, int(x - step)), int(x + step) + 2)
            # One row of pixels suffices for what depends on the column alone.
            across = X[:1, near[1]] - x
            bent = Y[near] - row - 0.006 * across**2
            band = np.exp(-((bent / 8) ** 4) - (across / (step * 0.4)) ** 6)
            image[near] -= 0.8 * level * band
    page = Image.fromarray(to_rgb(blur(image, 1) + rng.normal(0, 0.015, (HEIGHT, WIDTH))))
    draw = ImageDraw.Draw(page)
    draw.rectangle((0, 0, 97, HEIGHT), fill="white")
    draw.rectangle((0, 0, WIDTH, 55), fill="white")
    draw.rectangle((0, 240, WIDTH, HEIGHT), fill="white")
    for y, name in ((98, topic.gene), (188, "β-actin")):
        draw.text((12, y), name, fill="black", font=font(13))
    for i in range(lanes):
        draw.text((100 + step * (i + 0.4), 32), f"{2**i >> 1}", fill="black", font=font(11))
    draw.text((12, 32), f"{topic.drug[:9]} µM", fill="black", font=font(11))
    verb = "fades" if fades else "grows"
    return PanelContent(
        np.array(page),
        f"{topic.drug.capitalize()} {'lowers' if fades else 'raises'} {topic.gene} protein",
        f"Western blot of {topic.gene} and β-actin in {topic.cells}, {count(lanes)} lanes",
        f"The band of {topic.gene} {verb} from left to right with the dose; β-actin is the "
        "loading control.",
        f"Western blot de {topic.gene} y β-actina con {lanes} carriles: la banda "
        f"{'disminuye' if fades else 'aumenta'} con la dosis",
    )


MICROGRAPHS: tuple[Callable[[Topic, Rng], PanelContent], ...] = (
    histology,
    immunohistochemistry,
    fluorescence,
    phase_image,
    electron_micrograph,
    western_blot,
)
