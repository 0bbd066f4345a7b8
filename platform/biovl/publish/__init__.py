"""The job ``publish``: upload published folders to the Hugging Face Hub."""
