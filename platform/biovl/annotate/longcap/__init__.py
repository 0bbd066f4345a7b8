"""Generation of long captions: a figure's caption enriched with text of its article."""
