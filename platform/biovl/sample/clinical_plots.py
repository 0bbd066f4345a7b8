"""Synthetic clinical panels: survival curves, trials, diagnostics and electrocardiograms."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from biovl.sample.canvas import BARE, plot_pixels
from biovl.sample.words import COLOURS, N, P, PanelContent, Rng, Topic, count, pick


def survival(topic: Topic, rng: Rng) -> PanelContent:
    """Draw Kaplan–Meier curves of two groups."""
    first, second = (COLOURS[i] for i in rng.permutation(len(COLOURS))[:2])
    differ = bool(rng.integers(3))
    n = int(rng.integers(40, 120))
    months = [np.sort(rng.exponential(scale, n)) for scale in (90, 22 if differ else 85)]

    def draw(axes: Axes) -> None:
        for times, colour, name in zip(months, (first, second), ("low", "high"), strict=True):
            shown = times[times < 60]
            alive = 100 * (1 - np.arange(len(shown) + 1) / n)
            axes.step(np.r_[0, shown], alive, where="post", color=colour.hex, label=name)
            axes.plot(shown[::9], alive[1::9], "|", color=colour.hex, ms=5)
        axes.legend(frameon=False, fontsize=7, title=topic.gene, title_fontsize=7)
        axes.set(xlabel="Months", ylabel="Overall survival (%)", ylim=(0, 103), xlim=(0, 60))

    result = "is shorter" if differ else "does not differ"
    return PanelContent(
        plot_pixels(draw),
        f"Survival {result} with high <italic>{topic.gene}</italic>",
        f"Kaplan–Meier curves of overall survival in {topic.disease} by <italic>{topic.gene}"
        f"</italic> expression (low, {first.name}; high, {second.name})",
        f"Log-rank {P} {'&lt; 0.001' if differ else '= 0.71'}; {N} = {n} per group; ticks mark "
        f"censored patients. The curves {'separate widely' if differ else 'lie close together'}.",
        f"curvas de Kaplan–Meier en {topic.disease_es}: expresión baja ({first.spanish}) y alta "
        f"({second.spanish}), {'separadas' if differ else 'sin diferencia'}",
    )


def roc(topic: Topic, rng: Rng) -> PanelContent:
    """Draw a receiver operating characteristic curve."""
    colour, power = pick(rng, COLOURS), float(pick(rng, (1.15, 2.2, 5.0, 14.0)))
    auc = power / (1 + power)

    def draw(axes: Axes) -> None:
        x = np.sort(rng.uniform(0, 1, 60))
        axes.step(np.r_[0, x, 1], np.r_[0, x ** (1 / power), 1], color=colour.hex, where="post")
        axes.plot([0, 1], [0, 1], "--", color="grey", lw=1)
        axes.text(0.5, 0.1, f"AUC = {auc:.2f}")
        axes.set(xlabel="1 − specificity", ylabel="Sensitivity", xlim=(0, 1), ylim=(0, 1.02))

    grade = {1.15: "barely", 2.2: "moderately", 5.0: "well", 14.0: "almost perfectly"}[power]
    return PanelContent(
        plot_pixels(draw),
        f"{topic.marker} separates patients with {topic.disease} from controls {grade}",
        f"receiver operating characteristic curve of {topic.marker} ({colour.name} line; dashed, "
        "chance)",
        f"The area under the curve is {auc:.2f}.",
        f"curva ROC de {topic.marker} de color {colour.spanish}, área bajo la curva {auc:.2f}",
    )


def forest(topic: Topic, rng: Rng) -> PanelContent:
    """Draw a forest plot of a meta-analysis."""
    studies, helps = int(rng.integers(4, 10)), bool(rng.integers(2))
    effects = np.exp(rng.normal(-0.55 if helps else 0.55, 0.18, studies))
    pooled = float(np.exp(np.log(effects).mean()))

    def draw(axes: Axes) -> None:
        rows = np.arange(studies, 0, -1)
        width = rng.uniform(0.15, 0.5, studies) * effects
        axes.errorbar(effects, rows, xerr=width, fmt="s", color="black", ms=4, lw=1)
        diamond = [pooled - 0.12, pooled, pooled + 0.12, pooled]
        axes.fill(diamond, [0, 0.3, 0, -0.3], color="#2166ac")
        axes.axvline(1, color="grey", ls="--", lw=1)
        axes.set_yticks([*rows, 0], [*(f"Study {i + 1}" for i in range(studies)), "Total"])
        axes.tick_params(axis="y", labelsize=6)
        axes.set(xlabel="Odds ratio (95% CI)", xlim=(0, 3))

    side = "left" if helps else "right"
    return PanelContent(
        plot_pixels(draw),
        f"{topic.drug.capitalize()} {'lowers' if helps else 'raises'} mortality in {topic.disease}",
        f"forest plot of {count(studies)} studies of {topic.drug} in {topic.disease}",
        f"The pooled odds ratio (blue diamond) is {pooled:.2f} and lies to the {side} of the line "
        "of no effect. Squares, single studies.",
        f"diagrama de bosque de {studies} estudios de {topic.drug}, razón de momios {pooled:.2f}",
    )


def flow_diagram(topic: Topic, rng: Rng) -> PanelContent:
    """Draw the flow of participants through a study."""
    arms, screened = int(rng.integers(2, 4)), int(rng.integers(300, 900))
    randomised = screened - int(rng.integers(40, 200))
    fill = pick(rng, (("white", "white", "blancas"), ("light blue", "#d0e1f2", "celestes")))

    def draw(axes: Axes) -> None:
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.axis("off")

        def box(x: float, y: float, text: str, width: float) -> None:
            corner = (x - width / 2, y - 0.07)
            axes.add_patch(
                FancyBboxPatch(corner, width, 0.14, boxstyle="round,pad=0.01", fc=fill[1], lw=1)
            )
            axes.text(x, y, text, ha="center", va="center", fontsize=7)

        box(0.5, 0.9, f"Screened (n = {screened})", 0.44)
        box(0.5, 0.55, f"Randomised (n = {randomised})", 0.44)
        axes.annotate("", (0.5, 0.63), (0.5, 0.82), arrowprops={"arrowstyle": "->"})
        for i in range(arms):
            x = (i + 0.5) / arms
            box(x, 0.14, f"{('Placebo', topic.drug, 'Both')[i]}\n(n = {randomised // arms})", 0.27)
            axes.annotate("", (x, 0.23), (0.5, 0.47), arrowprops={"arrowstyle": "->"})

    return PanelContent(
        plot_pixels(draw, BARE),
        f"Participants of the trial of {topic.drug} in {topic.disease}",
        f"flow diagram of the trial with {count(arms)} arms ({fill[0]} boxes)",
        f"Of {screened} patients screened, {randomised} were randomised to {count(arms)} arms.",
        f"diagrama de flujo del ensayo con {arms} brazos (cajas {fill[2]}), {randomised} pacientes",
    )


def electrocardiogram(topic: Topic, rng: Rng) -> PanelContent:
    """Draw one lead of an electrocardiogram on graph paper."""
    rate, words, words_es = pick(
        rng,
        (
            (42, "sinus bradycardia", "bradicardia sinusal"),
            (75, "normal sinus rhythm", "ritmo sinusal normal"),
            (150, "tachycardia", "taquicardia"),
        ),
    )
    lead = pick(rng, ("I", "II", "V1", "V5"))

    def draw(axes: Axes) -> None:
        t = np.linspace(0, 4, 900)
        phase = (t * rate / 60) % 1
        wave = sum(
            height * np.exp(-(((phase - at) / width) ** 2))
            for height, at, width in (
                (0.12, 0.2, 0.05), (-0.15, 0.36, 0.012), (1.1, 0.4, 0.015), (-0.25, 0.44, 0.014),
                (0.25, 0.68, 0.07),
            )
        )  # fmt: skip
        axes.set(xlim=(0, 4), ylim=(-1, 1.8), xticks=np.arange(0, 4, 0.2))
        axes.set_yticks(np.arange(-1, 1.8, 0.2))
        axes.grid(color="#f4a6a6", lw=0.6)
        axes.tick_params(length=0, labelleft=False, labelbottom=False)
        axes.plot(t, wave + rng.normal(0, 0.015, len(t)), color="black", lw=0.9)
        axes.text(0.05, 1.5, lead, fontsize=9)

    return PanelContent(
        plot_pixels(draw, BARE),
        f"{words.capitalize()} in a patient with {topic.disease}",
        f"electrocardiogram (lead {lead}) on pink grid paper showing {words}",
        f"The rate is {rate} beats per minute; paper speed, 25 mm s<sup>−1</sup>.",
        f"electrocardiograma (derivación {lead}) con {words_es}, {rate} latidos por minuto",
    )


CLINICAL_PLOTS: tuple[Callable[[Topic, Rng], PanelContent], ...] = (
    survival,
    roc,
    forest,
    flow_diagram,
    electrocardiogram,
)
