"""A learned detector of panels, trained on drawn figures: its boxes are further proposals."""
