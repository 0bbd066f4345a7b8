"""Pure functions over image bytes and pixels."""
