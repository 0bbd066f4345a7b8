"""A retrieval task from articles: find the figure of a caption, or of a citing sentence."""
