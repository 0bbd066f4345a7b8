"""From votes about clusters to labels of images."""
