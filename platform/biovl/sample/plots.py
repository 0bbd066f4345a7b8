"""Synthetic laboratory plots: bars, curves, scatter plots, box plots and heat maps."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes

from biovl.sample.canvas import plot_pixels
from biovl.sample.words import COLOURS, N, P, PanelContent, Rng, Topic, count, pick


def bars(topic: Topic, rng: Rng) -> PanelContent:
    """Draw a dose-response bar chart."""
    colour, groups = pick(rng, COLOURS), int(rng.integers(2, 7))
    rises = bool(rng.integers(2))
    low, high = float(rng.integers(5, 20)), float(rng.integers(45, 98))
    means = np.linspace(low, high, groups) + np.r_[0, rng.normal(0, 2, groups - 2), 0]
    means = means if rises else means[::-1]
    errors = rng.uniform(2, 6, groups)

    def draw(axes: Axes) -> None:
        doses = ["0", "1", "5", "10", "20", "50"][:groups]
        axes.bar(doses, means, yerr=errors, color=colour.hex, capsize=3, width=0.65)
        for x in range(1, groups):
            axes.text(x, means[x] + errors[x] + 1, "*" * int(rng.integers(1, 4)), ha="center")
        axes.set(xlabel=f"{topic.drug} (µM)", ylabel=f"{topic.marker} (pg/ml)", ylim=(0, 115))

    verb = "rises" if rises else "falls"
    return PanelContent(
        plot_pixels(draw),
        f"{topic.marker} {verb} with the dose of {topic.drug}",
        f"bar chart of {topic.marker} in {count(groups)} groups of {topic.cells} "
        f"({colour.name} bars)",
        f"The mean {'rose' if rises else 'fell'} from {means[0]:.0f} to {means[-1]:.0f} pg/ml. "
        f"Error bars, s.e.m.; {N} = {rng.integers(3, 9)}; *{P} &lt; 0.05.",
        f"gráfico de barras de color {colour.spanish} con {groups} grupos: {topic.marker} "
        f"{'aumenta' if rises else 'disminuye'} con la dosis de {topic.drug}",
    )


def time_course(topic: Topic, rng: Rng) -> PanelContent:
    """Draw a line chart of two to four treatments over time."""
    lines = int(rng.integers(2, 5))
    colours = [COLOURS[i] for i in rng.permutation(len(COLOURS))[:lines]]
    shape = pick(rng, ("rises", "falls", "peaks"))
    hours = np.arange(0, 25, 4)
    curve = {
        "rises": 1 - np.exp(-hours / 8),
        "falls": np.exp(-hours / 8),
        "peaks": np.exp(-(((hours - 10) / 5) ** 2)),
    }[shape]

    def draw(axes: Axes) -> None:
        names = ["control", topic.drug, "vehicle", "combined"]
        for i, colour in enumerate(colours):
            y = curve * (100 - 20 * i) + rng.normal(0, 1.5, len(hours)) + 5
            axes.errorbar(
                hours, y, 4, color=colour.hex, marker="os^D"[i], label=names[i], ms=4, capsize=2
            )
        axes.legend(frameon=False, fontsize=7)
        axes.set(xlabel="Time (h)", ylabel=f"{topic.gene} mRNA (%)", ylim=(0, 120))

    names_en = ", ".join(colour.name for colour in colours)
    when = {"rises": "over 24 h", "falls": "over 24 h", "peaks": "at about 10 h"}[shape]
    return PanelContent(
        plot_pixels(draw),
        f"Expression of <italic>{topic.gene}</italic> {shape} {when}",
        f"line graph of <italic>{topic.gene}</italic> mRNA in {topic.cells} with "
        f"{count(lines)} curves ({names_en})",
        f"Expression {shape} {when} in all {count(lines)} treatments. Symbols, means; bars, s.d.",
        f"gráfico de líneas con {lines} curvas de la expresión de {topic.gene} a lo largo de 24 h",
    )


def correlation(topic: Topic, rng: Rng) -> PanelContent:
    """Draw a scatter plot with its regression line."""
    colour, sign = pick(rng, COLOURS), int(rng.integers(-1, 2))
    n = int(rng.integers(25, 140))
    x = rng.normal(50, 14, n)
    y = sign * 0.9 * (x - 50) + rng.normal(0, 6 if sign else 14, n) + 55
    r = float(np.corrcoef(x, y)[0, 1])

    def draw(axes: Axes) -> None:
        axes.scatter(x, y, s=12, color=colour.hex, alpha=0.75, linewidths=0)
        axes.plot([20, 80], np.polyval(np.polyfit(x, y, 1), [20, 80]), color="black", lw=1)
        axes.text(0.03, 0.94, f"r = {r:.2f}", transform=axes.transAxes)
        axes.set(xlabel=f"{topic.marker} (ng/ml)", ylabel="Severity score")

    words = {-1: "falls with", 0: "does not depend on", 1: "rises with"}[sign]
    kind = {-1: "a negative", 0: "no", 1: "a positive"}[sign]
    kind_es = {-1: "correlación negativa", 0: "sin correlación", 1: "correlación positiva"}[sign]
    return PanelContent(
        plot_pixels(draw),
        f"Severity of {topic.disease} {words} {topic.marker}",
        f"scatter plot of {topic.marker} and severity score in {n} patients ({colour.name} dots)",
        f"There was {kind} correlation (Pearson’s <italic>r</italic> = {r:.2f}). "
        "The black line is the least-squares fit.",
        f"diagrama de dispersión de color {colour.spanish} con {n} pacientes, {kind_es} entre "
        f"{topic.marker} y la gravedad",
    )


def boxes(topic: Topic, rng: Rng) -> PanelContent:
    """Draw box plots of patients against controls."""
    colour, groups = pick(rng, COLOURS[:6]), int(rng.integers(2, 6))
    higher = bool(rng.integers(2))
    step = 14 if higher else -14
    samples = [rng.normal(50 + step * i / (groups - 1) * 2, 8, 40) for i in range(groups)]

    def draw(axes: Axes) -> None:
        plot = axes.boxplot(samples, patch_artist=True, widths=0.55, medianprops={"color": "black"})
        for i, patch in enumerate(plot["boxes"]):
            patch.set(facecolor="white" if i == 0 else colour.hex, alpha=0.8)
        axes.set_xticklabels(["HC", "I", "II", "III", "IV"][:groups])
        axes.set(xlabel="Stage", ylabel=f"{topic.marker} (U/ml)")

    word = "higher" if higher else "lower"
    return PanelContent(
        plot_pixels(draw),
        f"{topic.marker} is {word} in {topic.disease} than in controls",
        f"box plots of serum {topic.marker} in healthy controls (HC, white) and {count(groups - 1)}"
        f" stage{'s' if groups > 2 else ''} of {topic.disease} ({colour.name})",
        f"Values become {word} from left to right. Boxes, interquartile range; line, median; "
        "whiskers, 1.5 times the interquartile range.",
        f"diagrama de cajas de {topic.marker}: más {'alto' if higher else 'bajo'} en "
        f"{topic.disease_es} (color {colour.spanish}) que en los controles, {groups} grupos",
    )


def heat_map(topic: Topic, rng: Rng) -> PanelContent:
    """Draw a clustered expression map."""
    colours, words, words_es = pick(
        rng,
        (
            ("RdBu_r", "blue to red", "azul a rojo"),
            ("viridis", "purple to yellow", "morado a amarillo"),
            ("Greys", "white to black", "blanco a negro"),
            ("Greens", "white to green", "blanco a verde"),
        ),
    )
    clusters, genes = int(rng.integers(2, 5)), int(rng.integers(12, 30))
    block = np.arange(genes)[:, None] * clusters // genes == np.arange(16) * clusters // 16
    values = rng.normal(0, 0.5, (genes, 16)) + 2.2 * block - 1

    def draw(axes: Axes) -> None:
        image = axes.imshow(values, cmap=colours, aspect="auto", vmin=-2, vmax=2)
        axes.figure.colorbar(image, ax=axes, fraction=0.06, label="z score")
        axes.set(xlabel="Samples", ylabel="Genes", xticks=[], yticks=[])

    return PanelContent(
        plot_pixels(draw, (0.12, 0.14, 0.74, 0.78)),
        f"Gene expression in {topic.disease} forms {count(clusters)} clusters",
        f"heat map of {genes} genes in 16 samples of {topic.organ} (colour scale, {words})",
        f"Hierarchical clustering shows {count(clusters)} blocks along the diagonal.",
        f"mapa de calor de {genes} genes en 16 muestras de {topic.organ_es} (de {words_es}) con "
        f"{clusters} grupos",
    )


def volcano(topic: Topic, rng: Rng) -> PanelContent:
    """Draw a volcano plot of differential expression."""
    first, second = pick(rng, ((1, 0), (3, 4), (2, 0)))
    raised, lowered = COLOURS[first], COLOURS[second]
    more_raised = bool(rng.integers(2))
    up, down = (90, 20) if more_raised else (20, 90)
    x = np.r_[rng.normal(0, 0.5, 500), rng.uniform(1.2, 4, up), -rng.uniform(1.2, 4, down)]
    y = np.abs(rng.normal(0, 0.7, len(x))) + np.where(np.abs(x) > 1.2, np.abs(x) * 1.8, 0)

    def draw(axes: Axes) -> None:
        tint = np.where(x > 1.2, raised.hex, np.where(x < -1.2, lowered.hex, "#bbbbbb"))
        axes.scatter(x, y, s=6, c=tint, linewidths=0)
        axes.axhline(1.3, color="black", ls=":", lw=0.8)
        axes.set(xlabel="log2 fold change", ylabel="−log10 P")

    return PanelContent(
        plot_pixels(draw),
        f"More genes are {'raised' if more_raised else 'lowered'} than "
        f"{'lowered' if more_raised else 'raised'} in {topic.disease}",
        f"volcano plot of differential expression in {topic.organ} ({raised.name}, raised; "
        f"{lowered.name}, lowered; grey, unchanged)",
        f"{up} genes were raised (right) and {down} lowered (left); log<sub>2</sub> fold change "
        f"against −log<sub>10</sub> {P}.",
        f"gráfico de volcán: {up} genes aumentados ({raised.spanish}) y {down} disminuidos "
        f"({lowered.spanish})",
    )


LABORATORY_PLOTS: tuple[Callable[[Topic, Rng], PanelContent], ...] = (
    bars,
    time_course,
    correlation,
    boxes,
    heat_map,
    volcano,
)
