"""A learned panel detector, trained on synthetic figures: a further source of proposals."""
