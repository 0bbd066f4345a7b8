"""Settings of assemble."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from biovl.assemble.duplicates import MAX_DISTANCE
from biovl.assemble.rules import make_rules, with_names
from biovl.core.config import REQUIRED, Recipe
from biovl.core.errors import ConfigError
from biovl.core.plugins import Plugin

RETRACTION = "not_retracted"
"""Name of the rule that drops retracted articles."""


DEFAULT_RULES = (
    Plugin("usable_image"),
    Plugin("figure_kinds"),
    Plugin("newest_version"),
    Plugin(RETRACTION),
    Plugin("has_caption"),
    # Drops thumbnails, spacers and rulers, which show nothing at a model's 224 px.
    Plugin("min_side", {"px": 64}),
    Plugin("max_aspect", {"ratio": 10}),
)


_AS_PUBLISHED = (
    Plugin("usable_image"),
    # The archive that the papers read has one version of each article.
    Plugin("newest_version"),
    # BIOMEDICA, 13.2: "only necessary files (nxml and jpg) are kept"; PMC-15M's builder as well.
    Plugin("value_one_of", {"column": "image_format", "allowed": ["jpeg"]}),
    Plugin("has_caption"),
)
"""What the papers require of a pair, and nothing more."""

LISTED_TOPICS = (
    # BIOMEDICA, section 6: "only concepts within clinical and scientific imaging, immunoassays,
    # illustrative diagrams, chemical structures, maps, tools and materials, and
    # hand-drawn/screen-based visuals (excluding tables, figures, and scientific equations)".
    # Scientific imaging is microscopy (14.6). In table 16 they have 10,452,004 images, not the
    # 6,602,752 of section 6, which no choice of topics explains.
    *("Clinical Imaging", "Microscopy", "Immuno Assays", "Illustrative Diagrams"),
    *("Chemical Structures", "Maps", "Tools and Materials"),
    "Hand Drawn and Screen Based Visuals",
)
_OTHER_TOPICS = (
    *("Plots and Charts", "Tables", "Scientific Formulae and Equations"),
    *("Graph and Network", "PCR", "Laboratory Specimens and Cultures", "Natural Images"),
    "Ambiguous",
)
"""The other concepts of the taxonomy."""


TextChoice = Literal[
    "caption", "caption+mentions", "context_caption", "expanded_caption", "long_caption"
]


@dataclass(frozen=True, kw_only=True)
class ImageConfig:
    """Size and format of the images in the shards."""

    short_side_px: PositiveInt | None = None
    """Maximum length of the shorter side, in pixels: larger images are reduced, and stored as RGB
    JPEG, or as PNG if a side is above 65,500 px. None: keep the published bytes; what training
    readers do not support or show wrongly (TIFF, GIF, 16 bits, transparent parts, an EXIF
    orientation …) becomes PNG as displayed."""

    jpeg_quality: Annotated[int, Field(ge=1, le=95)] = 90
    """JPEG quality of reduced images, on Pillow's scale."""


@dataclass(frozen=True, kw_only=True)
class SplitShares:
    """Sizes of the val and test splits, which consist of whole articles or groups of a table."""

    val_permyriad: NonNegativeInt = 500
    """Articles of 10,000 that go to val; 0: no val split."""

    test_permyriad: NonNegativeInt = 500
    """Articles of 10,000 that go to test; 0: no test split."""

    least_articles: NonNegativeInt = 50
    """Minimum articles of val, and of test: smaller splits are extended to this number, but to at
    most a tenth of all articles, and at least one. 0: no minimum."""

    most_articles: PositiveInt | None = 10_000
    """Maximum articles of val, and of test; larger splits are cut to it. None: no maximum."""

    def __post_init__(self) -> None:
        if self.most_articles is not None and self.most_articles < self.least_articles:
            raise ValueError("most_articles must not be less than least_articles")
        if self.val_permyriad + self.test_permyriad > 10_000:
            raise ValueError("val and test together are more than all articles")


@dataclass(frozen=True, kw_only=True)
class DuplicateConfig:
    """Criteria for duplicate images."""

    exact: bool = True
    """Whether identical files count as duplicates. Without it all images are kept, as in the
    papers, and the same image may be in train and in test; it requires near=false."""

    near: bool = True
    """Whether similar images, by perceptual hash, count as duplicates, in addition to identical
    files."""

    max_distance: Annotated[int, Field(ge=0, le=8)] = MAX_DISTANCE
    """Maximum Hamming distance of the 64-bit perceptual hashes of near duplicates, in bits."""

    def __post_init__(self) -> None:
        if self.near and not self.exact:
            raise ValueError("near=true requires exact=true: identical files look alike")


@dataclass(frozen=True, kw_only=True)
class BalanceConfig:
    """Maximum number of pairs per label. Applied last, to pairs that no rule drops."""

    column: str = "global_concepts"
    """Column with the labels: one string per row, or a list of strings. A row with several labels
    is kept only if none of them has reached the cap."""

    cap: PositiveInt | None = None
    """Maximum pairs per label; pairs without a label count as one label of their own. None: no
    cap."""

    target: PositiveInt | None = None
    """Instead of ``cap``: the largest cap that keeps at most this many pairs in total is used.
    None: no target."""

    def __post_init__(self) -> None:
        if self.cap is not None and self.target is not None:
            raise ValueError("cap and target exclude each other: set one of them")

    @property
    def is_set(self) -> bool:
        """Whether a cap or a target is set."""
        return self.cap is not None or self.target is not None


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """Maximum number of pairs and size of a shard."""

    pairs: PositiveInt = 10_000
    """Maximum pairs per shard."""

    size_mb: PositiveInt = 1_000
    """Maximum size of a shard in MB; only a single larger pair exceeds it."""


@dataclass(frozen=True, kw_only=True)
class AssembleConfig:
    """Settings of assemble: inputs, selection of rows, and format of the corpus."""

    figures: str
    """A folder published by harvest, or the panels that split published from it; local or
    ``s3://``."""

    out: str
    """The folder to publish, local or ``s3://``."""

    updates: tuple[str, ...] = ()
    """Later incremental harvests, in chronological order. Rows of earlier harvests that a later
    ``tombstones.parquet`` lists are left out."""

    columns: tuple[str, ...] = ()
    """Published folders of additional columns, with the same parts and rows as the figures; with
    ``updates``, the same columns for each harvest."""

    rules: tuple[Plugin, ...] = DEFAULT_RULES
    """Rules that drop rows, applied in this order; a dropped pair counts under the first rule that
    rejects it. ``rules+=min_side(300)`` adds a rule to those of the recipe, ``rules-=min_side``
    removes one, and ``rules=[…]`` replaces all."""

    retracted: Literal["drop", "keep"] = "drop"
    """Treatment of retracted articles. ``drop`` requires the rule ``not_retracted``, so that a
    custom list of rules cannot admit them by accident; ``keep`` removes the rule and trains on
    them."""

    leaks: tuple[str, ...] = ()
    """Published benchmark reports that were made with an index. Figures that duplicate a benchmark
    image are left out, so that the model can be evaluated on it: identical files, and images with a
    similar perceptual hash. So are duplicates of these figures, which the report does not list if
    they were not in its corpus."""

    leak_similarity: float | None = None
    """Also leave out figures whose embedding is at least this similar to a benchmark image in the
    reports of ``leaks``, as cosine similarity. None: do not compare embeddings. A good threshold
    depends on the model: small models give high similarities to many different images."""

    text: TextChoice = "caption"
    """Text of a pair: ``caption``; ``caption+mentions``, the caption and the paragraphs that cite
    the figure; or a column of this name written by annotate (in ``columns``). Columns that are not
    selected are stored next to the text."""

    embeddings: tuple[str, ...] = ()
    """Columns of embeddings, of folders in ``columns``, to store with each pair as
    ``<pair_id>.<column>.npy``: ``embeddings=["clip_image", "clip_text"]`` for ``step.distill`` of
    pretrain. A figure without one of them is dropped. Other embeddings are not stored."""

    image: ImageConfig = field(default_factory=ImageConfig)
    """Size and format of the images in the shards."""
    split: SplitShares = field(default_factory=SplitShares)
    """Sizes of the val and test splits."""
    duplicates: DuplicateConfig = field(default_factory=DuplicateConfig)
    """Criteria for duplicate images."""
    balance: BalanceConfig = field(default_factory=BalanceConfig)
    """Maximum number of pairs per label."""
    shard: ShardConfig = field(default_factory=ShardConfig)
    """Maximum size of a shard."""

    full_text_tokens: bool = False
    """Whether to count the tokens of the articles' full texts for the statistics (BIOMEDICA, table
    7): about 50 CPU hours for six million articles."""

    may_be_empty: bool = False
    """Whether to publish a result without any usable row; otherwise this is an error."""

    seed: Annotated[int, Field(ge=0, lt=2**64)] = 0
    """Seed of the order of the pairs, and of the choice of pairs that ``balance`` keeps. Splits do
    not depend on it: they are a function of the article ids."""

    def __post_init__(self) -> None:
        if len(set(self.embeddings)) < len(self.embeddings):
            raise ValueError(f"embeddings: a column occurs twice in {list(self.embeddings)}")
        # Checked here, so that unknown names and settings are reported with other invalid ones.
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


# Zhang et al. 2023, arXiv:2303.00915, extended data: 13.9 M, 13.6 k and 726 k pairs. Together
# 14.64 M of the 15,282,336; the paper does not say where the others are, nor how it split.
_PMC_15M_SPLITS = SplitShares(
    val_permyriad=9, test_permyriad=496, least_articles=0, most_articles=None
)


def _of_listed_topics() -> Plugin:
    return Plugin("any_of", {"column": "global_concepts", "allowed": list(LISTED_TOPICS)})


def default() -> AssembleConfig:
    """Every usable, captioned figure of reviewed articles, original bytes (needs figures, out)."""
    return AssembleConfig(figures=REQUIRED, out=REQUIRED, rules=DEFAULT_RULES)


def training() -> AssembleConfig:
    """The default, with images reduced to 288 px, so that decoding keeps up with training."""
    # Enough for inputs of 224 px (273 px with crops of 0.9 of the area): all models of the papers
    # but biomedclip_384. Pretrain rejects larger models on such a corpus.
    return replace(default(), image=ImageConfig(short_side_px=288))


def long_captions() -> AssembleConfig:
    """The default with the paragraphs that cite a figure after its caption, as in BMC-LongCLIP."""
    return replace(default(), text="caption+mentions")


def commercial() -> AssembleConfig:
    """The default, restricted to licences that allow commercial use."""
    allowed = Plugin("license_groups", {"allowed": ["commercial"]})
    return replace(default(), rules=(*default().rules, allowed))


def concept_filtered() -> AssembleConfig:
    """BMCA-CLIP_CF: training, without plots, tables and formulae (needs columns with labels)."""
    # Stored as in training: BMCA-CLIP is a ViT-L/14 of 224 px, in its authors' scripts as well.
    # A figure with such a concept and a plot is kept.
    return replace(training(), rules=(*training().rules, _of_listed_topics()))


def concept_balanced() -> AssembleConfig:
    """BMCA-CLIP_CB: training, labels capped to keep 8.4 M pairs (needs columns with labels)."""
    # BIOMEDICA, section 6. With the counts of its table 16 that is a cap of 1,043,525; smaller
    # corpora are balanced with balance.cap=… or a target of their own.
    return replace(training(), balance=BalanceConfig(column="global_concepts", target=8_404_992))


def pmc_15m_filtered() -> AssembleConfig:
    """Training, with the splits of PMC-15M: 9 and 496 of 10,000 articles to val and test."""
    return replace(training(), split=_PMC_15M_SPLITS)


def pmc_15m() -> AssembleConfig:
    """PMC-15M as published: no rule on size, duplicates or retractions."""
    # Methods: articles with "missing information errors are ignored"; the authors' builder skips
    # an article if a figure has no caption, and reads .jpg alone.
    skipped = Plugin("captioned_articles")
    return replace(_as_published(), rules=(*_AS_PUBLISHED, skipped), split=_PMC_15M_SPLITS)


def _as_published() -> AssembleConfig:
    return AssembleConfig(
        figures=REQUIRED,
        out=REQUIRED,
        rules=_AS_PUBLISHED,
        retracted="keep",
        split=SplitShares(val_permyriad=0, test_permyriad=0, least_articles=0, most_articles=None),
        duplicates=DuplicateConfig(exact=False, near=False),
    )


def biomedica_24m() -> AssembleConfig:
    """BIOMEDICA as published: every JPEG with a caption, all in train; token counts (table 7)."""
    return replace(_as_published(), full_text_tokens=True)


def biomedica_6m() -> AssembleConfig:
    """BMCA-CLIP_CF as published: biomedica_24m with the listed topics only (needs labels)."""
    # "includes only concepts within …": a figure that also has another topic is left out.
    others = Plugin("none_of", {"column": "global_concepts", "forbidden": list(_OTHER_TOPICS)})
    return replace(_as_published(), rules=(*_AS_PUBLISHED, _of_listed_topics(), others))


def biomedica_8m() -> AssembleConfig:
    """BMCA-CLIP_CB as published: biomedica_24m, capped by topic to 8.4 M pairs (needs labels)."""
    return replace(_as_published(), balance=concept_balanced().balance)


def small() -> AssembleConfig:
    """The default for small corpora: 10 % of the articles to val, 10 % to test."""
    return replace(default(), split=SplitShares(val_permyriad=1_000, test_permyriad=1_000))


AS_PUBLISHED: dict[str, Recipe[AssembleConfig]] = {
    "pmc_15m": pmc_15m,
    "biomedica_24m": biomedica_24m,
    "biomedica_6m": biomedica_6m,
    "biomedica_8m": biomedica_8m,
}
"""Corpora of the papers, made as the papers made them."""

RECIPES: dict[str, Recipe[AssembleConfig]] = {
    "default": default,
    "training": training,
    "long_captions": long_captions,
    "commercial": commercial,
    "concept_filtered": concept_filtered,
    "concept_balanced": concept_balanced,
    "pmc_15m_filtered": pmc_15m_filtered,
    "small": small,
    **AS_PUBLISHED,
}
