"""The command ``publish``: published folders to the Hugging Face hub."""
