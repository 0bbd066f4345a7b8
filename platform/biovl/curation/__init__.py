"""Deciding which pairs we train on, from columns only."""
