"""Synthetic clinical images: fundus photographs, CT, MRI, radiographs, ultrasound."""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

from biovl.sample.canvas import HEIGHT, WIDTH, X, Y, blur, bundled, crop, ellipse, noise, to_rgb
from biovl.sample.words import PanelContent, Rng, Topic, pick


def fundus(topic: Topic, rng: Rng) -> PanelContent:
    """Crop the bundled fundus photograph, in colour or red-free, with or without lesions."""
    photo = crop(bundled("retina"), rng, (0.55, 1.0)).copy()
    photo = np.ascontiguousarray(photo[:: pick(rng, (1, -1)), :: pick(rng, (1, -1))])
    lesions, red_free = bool(rng.integers(2)), bool(rng.integers(2))
    if lesions:
        page = Image.fromarray(photo)
        for x, y in rng.uniform((90, 70), (WIDTH - 90, HEIGHT - 70), (22, 2)):
            r = float(rng.uniform(2, 5))
            ImageDraw.Draw(page).ellipse((x - r, y - r, x + r, y + r), fill=(90, 15, 10))
        photo = np.array(page)
    image = np.dstack([photo[..., 1]] * 3) if red_free else photo
    mode = "red-free (grey)" if red_free else "colour"
    return PanelContent(
        image,
        f"Retinal {'haemorrhages' if lesions else 'vessels without lesions'} in a patient with "
        f"{topic.disease}",
        f"{mode} fundus photograph of the retina",
        "Dark round dot haemorrhages are scattered over the posterior pole."
        if lesions
        else "Vessels are of normal calibre, and there are no haemorrhages.",
        f"fotografía de fondo de ojo {'aneritra' if red_free else 'en color'} "
        f"{'con' if lesions else 'sin'} hemorragias puntiformes",
    )


def brain_scan(topic: Topic, rng: Rng) -> PanelContent:
    """Draw an axial head from the Shepp–Logan phantom, as CT or MRI, with a lesion."""
    # An axial image is seen from the feet: the patient's left is on the right.
    left, bright = bool(rng.integers(2)), bool(rng.integers(2))
    modality = pick(rng, ("CT", "T1-weighted MRI", "T2-weighted MRI"))
    phantom = np.asarray(
        Image.fromarray(bundled("shepp_logan_phantom")).resize((HEIGHT - 20, HEIGHT - 20))
    )
    head = np.pad(phantom, ((10, 10), ((WIDTH - HEIGHT + 20) // 2, (WIDTH - HEIGHT + 20) // 2)))
    inside, skull = (head > 0.05) & (head < 0.6), head > 0.6
    grey = np.where(inside, 0.25 + head, 0)
    if modality == "CT":
        image = grey + skull * 1.0
    elif modality == "T1-weighted MRI":
        image = np.where(inside, 0.75 - head, 0) + skull * 0.45
    else:
        image = np.where(inside, 1.15 - 2.4 * head, 0) + skull * 0.2
    # Next to the ventricles, which are dark themselves.
    x = WIDTH / 2 + (1 if left else -1) * rng.uniform(54, 62)
    y, r = HEIGHT / 2 + rng.uniform(-45, 45), rng.uniform(9, 14)
    lesion = blur(ellipse(x, y, r, r * rng.uniform(0.7, 1.2)).astype(float), 1.5)
    image = image * (1 - lesion) + (0.95 if bright else 0.02) * lesion
    image = blur(image, 0.8) + rng.normal(0, 0.025, (HEIGHT, WIDTH))
    side, side_es = ("left", "izquierdo") if left else ("right", "derecho")
    tone = ("hyper" if bright else "hypo") + ("dense" if modality == "CT" else "intense")
    return PanelContent(
        to_rgb(image),
        f"{side.capitalize()}-sided brain lesion in a patient with {topic.disease}",
        f"axial {modality} of the head with a {tone} ({'bright' if bright else 'dark'}) lesion in "
        f"the {side} hemisphere",
        f"The lesion measures {2 * r:.0f} mm. The left of the patient is on the right.",
        f"{'TC' if modality == 'CT' else 'RM'} axial de la cabeza con una lesión "
        f"{'brillante' if bright else 'oscura'} en el hemisferio {side_es}",
    )


def chest(topic: Topic, rng: Rng) -> PanelContent:
    """Draw a chest radiograph or an axial chest CT with an opacity on one side."""
    left, is_ct = bool(rng.integers(2)), bool(rng.integers(2))
    lower = bool(rng.integers(2))
    toward = 1 if left else -1
    if is_ct:
        image = ellipse(180, 145, 160, 112) * 0.5 + ellipse(180, 145, 148, 100) * 0.1
        for x in (105, 255):
            image[ellipse(x, 140, 54, 74)] = 0.08
        image[ellipse(195, 150, 46, 40)] = 0.62
        image[ellipse(180, 215, 20, 17)] = 0.95
        x, y, r = 180 + toward * 80, 170 if lower else 105, rng.uniform(9, 16)
    else:
        image = 0.35 + 0.25 * ellipse(180, 200, 170, 260)
        for x in (108, 252):
            image[ellipse(x, 135, 56, 108)] = 0.13
        ribs = sum(
            np.abs(Y - (30 + 26 * i) - 0.0016 * (X - 180) ** 2 * (1 - i / 14)) < 4 for i in range(9)
        )
        image = image + 0.09 * ribs
        image[ellipse(205, 190, 58, 62)] = 0.68
        image[:, 170:190] = np.maximum(image[:, 170:190], 0.72)
        image[225 + 0.003 * (np.abs(X - 180) - 75) ** 2 < Y] = 0.75
        x, y, r = 180 + toward * 76, 178 if lower else 80, rng.uniform(18, 28)
    opacity = blur(ellipse(x, y, r, r).astype(float), 2.5 if is_ct else 7)
    image = blur(image, 1.5)
    image = image + opacity * (0.85 - image) * (1 if is_ct else 0.75)
    image = image + 0.02 * noise(rng, 2) + rng.normal(0, 0.02, (HEIGHT, WIDTH))
    side, side_es = ("left", "izquierdo") if left else ("right", "derecho")
    modality = "axial chest CT" if is_ct else "chest radiograph"
    what = "nodule" if is_ct else "opacity"
    where = ("posterior" if lower else "anterior") if is_ct else ("lower" if lower else "upper")
    return PanelContent(
        to_rgb(image),
        f"{what.capitalize()} in the {side} lung of a patient with {topic.disease}",
        f"{modality} with a bright {what} in the {side} lung",
        f"The {what} lies in the {where} part of the {side} lung, which is shown on the "
        f"{'right' if left else 'left'}.",
        f"{'TC axial' if is_ct else 'radiografía'} de tórax con "
        f"{'un nódulo' if is_ct else 'una opacidad'} en el pulmón {side_es}",
    )


def ultrasound(topic: Topic, rng: Rng) -> PanelContent:
    """Draw a sector of speckle with a cyst or a mass."""
    cyst = bool(rng.integers(2))
    depth = np.hypot(X - WIDTH / 2, Y + 40)
    sector = (np.abs(np.arctan2(X - WIDTH / 2, Y + 40)) < 0.62) & (depth > 60) & (depth < 310)
    speckle = np.abs(noise(rng, 1.5)) * (0.34 - 0.0006 * depth) + 0.05 * noise(rng, 9) + 0.1
    x, y = WIDTH / 2 + rng.uniform(-50, 50), rng.uniform(110, 190)
    rx, ry = rng.uniform(22, 42), rng.uniform(18, 32)
    lesion = blur(ellipse(x, y, rx, ry).astype(float), 1.5)
    image = speckle * (1 + lesion * (-0.95 if cyst else 2.2))
    if cyst:  # fluid does not attenuate sound: tissue behind a cyst is brighter
        behind = ((np.abs(X - x) < rx * 0.8) & (y + ry < Y)).astype(float)
        image = image * (1 + 1.1 * blur(behind, 4))
    size = f"{rx / 10:.1f} × {ry / 10:.1f} cm"
    what = "anechoic (black) cyst" if cyst else "echogenic (bright) mass"
    what_es = "quiste anecoico (negro)" if cyst else "masa ecogénica (brillante)"
    return PanelContent(
        to_rgb(image * sector),
        f"{'Cyst' if cyst else 'Mass'} of the {topic.organ} on ultrasound",
        f"B-mode ultrasound of the {topic.organ} showing an {what}",
        f"The {'cyst' if cyst else 'mass'} measures {size}"
        f"{' and shows posterior enhancement' if cyst else ''}.",
        f"ecografía de {topic.organ_es} con {what_es} de {size}",
    )


SCANS: tuple[Callable[[Topic, Rng], PanelContent], ...] = (
    fundus,
    brain_scan,
    chest,
    ultrasound,
)
