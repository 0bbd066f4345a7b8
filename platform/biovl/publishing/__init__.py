"""Published folders to a hub: which files go, which rows may go, and how they get there."""
