"""Learned panel detector, trained on synthetic figures: an additional source of panel proposals."""
