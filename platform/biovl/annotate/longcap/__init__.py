"""Long captions: a figure's caption enriched from its article."""
