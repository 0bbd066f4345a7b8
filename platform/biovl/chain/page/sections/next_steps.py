"""Section with the output folders and commands to continue with."""

from markupsafe import Markup

from biovl.chain.page.markup import parts
from biovl.chain.page.reading import Story

TITLE = "What next"

_STEP = 4_096
"""Batch size of the recipe ``biomedclip``, in pairs."""

_OF_KIND = {
    "figures": "every figure with its caption, the paragraphs that cite it, and its image",
    "corpus": "WebDataset shards and an index of every pair; README.md is the dataset card",
    "model": "the trained model; README.md is the model card: how to load it, and more curves",
    "index": "what finds figures by image, text, words and filters",
    "columns": "columns of images, part for part beside their table",
    "concepts": "clusters of images that look alike, to be named by people",
    "report": "scores with intervals, and every prediction",
}


def body(story: Story) -> Markup | None:
    """Return a section with the output folders, and commands that use them."""
    if not story.chapters:
        return None
    places = [
        (chapter.uri, _OF_KIND.get(chapter.manifest.kind, chapter.manifest.kind))
        for chapter in story.chapters
    ]
    return parts.next_steps(places, _commands(story))


def _commands(story: Story) -> list[tuple[str, str]]:
    model, index, corpus = story.of("model"), story.of("index"), story.of("corpus")
    commands: list[tuple[str, str]] = []
    if model and index:
        commands.append(
            (
                "Search in your browser, at http://127.0.0.1:8000",
                f"serve run serve.app:build model={model.uri} index={index.uri}",
            )
        )
    if model:
        commands.append(
            (
                "Embed images and texts in Python",
                "from biovl.models.encoder import load\n\n"
                f'encoder = load("{model.uri}")\n'
                'text_ND = encoder.embed_texts(["chest radiograph"])',
            )
        )
    if corpus:
        pairs = corpus.manifest.counts["pairs"]["train"]
        # The batch of the recipe is larger than a small corpus.
        smaller = f"--set batch.pairs={2 ** (pairs.bit_length() - 1)} " if pairs < _STEP else ""
        if pairs:
            commands.append(
                (
                    "See what training a real model on this corpus would take",
                    f"biovl pretrain biomedclip --set corpus={corpus.uri} "
                    f"{smaller}--set out={story.folder}/biomedclip --dry-run",
                )
            )
        commands.append(
            (
                "Do the same with articles of your own",
                "biovl all laptop --set folder=DIR --set source.path=PACKAGES",
            )
        )
    return commands
