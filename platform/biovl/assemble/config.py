"""The settings of assemble."""

from dataclasses import dataclass, field, replace
from typing import Literal

from biovl.assemble.duplicates import MAX_DISTANCE
from biovl.assemble.rules import make_rules, with_names
from biovl.core.config import REQUIRED, Recipe
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin

RETRACTION = "not_retracted"
"""The rule that drops articles known to be retracted."""


DEFAULT_RULES = (
    Plugin("usable_image"),
    Plugin("figure_kinds"),
    Plugin("newest_version"),
    Plugin(RETRACTION),
    Plugin("has_caption"),
    # Thumbnails, spacers and rulers: nothing a model of 224 px could see.
    Plugin("min_side", {"px": 64}),
    Plugin("max_aspect", {"ratio": 10}),
)


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """How images go into the shards."""

    short_side_px: int | None = None
    """None keeps the published bytes (what training readers do not know or get wrong becomes PNG:
    TIFF, GIF, 16 bits …); a number makes the shorter side at most this long, in RGB JPEG."""

    jpeg_quality: int = 90
    """Pillow's scale, for images that are made smaller."""

    def __post_init__(self) -> None:
        if self.short_side_px is not None and self.short_side_px < 1:
            raise ValueError(f"short_side_px must be positive, got {self.short_side_px}")
        if not 1 <= self.jpeg_quality <= 95:
            raise ValueError(f"jpeg_quality must be in 1..95, got {self.jpeg_quality}")


@dataclass(frozen=True, kw_only=True)
class SplitShares:
    """Which share of the articles, or of the groups of a table, is kept from training."""

    val_permyriad: int = 500
    """Articles of 10,000 that go to val; 0: none."""

    test_permyriad: int = 500
    """Articles of 10,000 that go to test; 0: none."""

    least_articles: int = 50
    """Where a share is fewer, val and test have so many articles each, but for that no more than a
    tenth of all, or one. 0: the shares alone decide."""

    most_articles: int | None = 10_000
    """Where a share is more, val and test have so many articles each; None: the shares alone
    decide."""

    def __post_init__(self) -> None:
        if self.least_articles < 0 or (self.most_articles or 1) < max(1, self.least_articles):
            raise ValueError("most_articles must be at least 1 and least_articles, that at least 0")
        if min(self.val_permyriad, self.test_permyriad) < 0:
            raise ValueError("shares must not be negative")
        if self.val_permyriad + self.test_permyriad > 10_000:
            raise ValueError("val and test together are more than all articles")


@dataclass(frozen=True, kw_only=True)
class DuplicateConfig:
    """Which images count as the same."""

    near: bool = True
    """Whether images that only look alike count, and not just equal files."""

    max_distance: int = MAX_DISTANCE
    """Bits by which the perceptual hashes of near duplicates may differ, 0 to 8."""

    def __post_init__(self) -> None:
        if not 0 <= self.max_distance <= 8:
            raise ValueError(f"max_distance must be in 0..8, got {self.max_distance}")


@dataclass(frozen=True, kw_only=True)
class BalanceConfig:
    """How many pairs of a concept are enough. Asked last, of pairs that nothing else drops."""

    column: str = "global_concepts"
    """Of labels, one or several a row; a row with several needs room under each of them."""

    cap: int | None = None
    """The most pairs of a label; pairs without one count as a label of their own."""

    target: int | None = None
    """In place of a cap: the largest one with which at most so many pairs stay."""

    def __post_init__(self) -> None:
        for name, value in (("cap", self.cap), ("target", self.target)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be positive, got {value}")
        if self.cap is not None and self.target is not None:
            raise ValueError("a cap and a target contradict each other: give one of them")

    @property
    def asked(self) -> bool:
        """Whether there is anything to do."""
        return self.cap is not None or self.target is not None


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """How the pairs are spread over tars."""

    pairs: int = 10_000
    """At most so many pairs in a shard."""

    size_mb: int = 1_000
    """At most so many bytes, unless a single pair has more."""

    def __post_init__(self) -> None:
        if self.pairs < 1 or self.size_mb < 1:
            raise ValueError("pairs and size_mb must be positive")


@dataclass(frozen=True, kw_only=True)
class AssembleConfig:
    """What a corpus is made of."""

    figures: str
    """The folder that harvest published, or panels that split made of it."""

    out: str
    """The folder to publish, local or ``s3://``."""

    updates: tuple[str, ...] = ()
    """Later harvests of what had changed, in their order. What their ``tombstones.parquet`` names
    of the harvests before them is left out."""

    columns: tuple[str, ...] = ()
    """Published folders of further columns, part for part beside the figures; with updates, the
    same columns of each."""

    rules: tuple[Plugin, ...] = DEFAULT_RULES
    """Asked in this order; a dropped pair is counted under the first that rejects it.
    ``rules+=min_side(300)`` adds one to those of the recipe, ``rules-=min_side`` removes one, and
    ``rules=[…]`` replaces all of them."""

    retracted: Literal["drop", "keep"] = "drop"
    """Articles known to be retracted. ``drop`` needs the rule not_retracted, so that no other list
    of rules lets them in unnoticed; ``keep`` trains on them, and removes the rule."""

    leaks: tuple[str, ...] = ()
    """Published reports of benchmarks that were given an index: figures near to an image of a
    benchmark are left out, so that a model can be judged by it. Near is the same file or an image
    that looks alike by perceptual hash."""

    leak_similarity: float | None = None
    """From which cosine on images that a report finds near by their vectors are left out as well.
    What is near depends on the model: a small one takes many images for the same."""

    text: Literal[
        "caption", "caption+mentions", "context_caption", "expanded_caption", "long_caption"
    ] = "caption"
    """What a pair's text is: its caption, its caption and the paragraphs that cite it, or what
    annotate wrote in a column of that name (in ``columns``), which else stands beside the text."""

    image: ImageConfig = field(default_factory=ImageConfig)
    split: SplitShares = field(default_factory=SplitShares)
    duplicates: DuplicateConfig = field(default_factory=DuplicateConfig)
    balance: BalanceConfig = field(default_factory=BalanceConfig)
    shard: ShardConfig = field(default_factory=ShardConfig)

    may_be_empty: bool = False
    """Whether a result without anything usable is published; else it is an error."""

    seed: int = 0
    """Decides the order of the pairs, and which stay where balance leaves some out; the split
    depends on the article's id alone."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be in 0..2^64-1, got {self.seed}")
        # Here, so that a name or a setting that is not known is reported as the others are.
        named = tuple(with_names(rule) for rule in self.rules)
        make_rules(named)
        if self.retracted == "keep":
            named = tuple(rule for rule in named if rule.name != RETRACTION)
        elif RETRACTION not in [rule.name for rule in named]:
            raise ConfigError(
                f"rules: {RETRACTION} is missing, so that retracted articles would be trained on. "
                f"Add it (rules+={RETRACTION}), or change single rules of the recipe "
                "(rules+=min_side(300), rules-=min_side). To train on retracted articles on "
                "purpose: retracted=keep"
            )
        object.__setattr__(self, "rules", named)


def default() -> AssembleConfig:
    """Every usable, captioned figure of reviewed articles, original bytes (needs figures, out)."""
    return AssembleConfig(figures=REQUIRED, out=REQUIRED, rules=DEFAULT_RULES)


def training() -> AssembleConfig:
    """The default, its images made small enough to decode at training speed (288 px)."""
    # Enough for models of 224 px, which are all of the papers' but biomedclip_384 (with crops of
    # 0.9 of the area up to 273 px); pretrain refuses larger ones on such a corpus.
    return replace(default(), image=ImageConfig(short_side_px=288))


def long_captions() -> AssembleConfig:
    """The default with the paragraphs that cite a figure after its caption, as in BMC-LongCLIP."""
    return replace(default(), text="caption+mentions")


def commercial() -> AssembleConfig:
    """The default, only with licences that allow commercial use."""
    allowed = Plugin("license_groups", {"allowed": ["commercial"]})
    return replace(default(), rules=(*default().rules, allowed))


def concept_filtered() -> AssembleConfig:
    """BMCA-CLIP_CF: training, without plots, tables and formulae (needs columns with labels)."""
    # Stored as in training: BMCA-CLIP is a ViT-L/14 of 224 px, in its authors' scripts as well.
    # BIOMEDICA, section 6: "only concepts within clinical and scientific imaging, immunoassays,
    # illustrative diagrams, chemical structures, maps, tools and materials, and
    # hand-drawn/screen-based visuals"; 6,602,752 of 24,076,288 pairs. Scientific imaging is
    # microscopy (14.6). A figure that has such a concept beside a plot stays.
    kept = [
        *("Clinical Imaging", "Microscopy", "Immuno Assays", "Illustrative Diagrams"),
        *("Chemical Structures", "Maps", "Tools and Materials"),
        "Hand Drawn and Screen Based Visuals",
    ]
    rule = Plugin("any_of", {"column": "global_concepts", "allowed": kept})
    return replace(training(), rules=(*training().rules, rule))


def concept_balanced() -> AssembleConfig:
    """BMCA-CLIP_CB: training, topics capped so that 8.4 M stay (needs columns with labels)."""
    # BIOMEDICA, section 6. With the counts of its table 16 that is a cap of 1,056,373; smaller
    # corpora are balanced with balance.cap=… or a target of their own.
    return replace(training(), balance=BalanceConfig(column="global_concepts", target=8_404_992))


def pmc_15m() -> AssembleConfig:
    """PMC-15M of BiomedCLIP: training, 9 and 496 of 10,000 articles to val and test."""
    # Section 2: 13.9 M, 13.6 k and 726 k pairs (Zhang et al. 2023, arXiv:2303.00915).
    split = SplitShares(val_permyriad=9, test_permyriad=496, least_articles=0, most_articles=None)
    return replace(training(), split=split)


def small() -> AssembleConfig:
    """The default for a few articles: a tenth of them to val, a tenth to test."""
    return replace(default(), split=SplitShares(val_permyriad=1_000, test_permyriad=1_000))


RECIPES: dict[str, Recipe[AssembleConfig]] = {
    "default": default,
    "training": training,
    "long_captions": long_captions,
    "commercial": commercial,
    "concept_filtered": concept_filtered,
    "concept_balanced": concept_balanced,
    "pmc_15m": pmc_15m,
    "small": small,
}
