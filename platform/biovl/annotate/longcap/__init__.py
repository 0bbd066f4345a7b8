"""Long captions: what an article says of a figure beside its caption."""
