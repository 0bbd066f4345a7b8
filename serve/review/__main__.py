"""Export and import votes as CSV: ``python -m serve.review export --database sqlite:///votes.db``."""

from serve.review.app import main

if __name__ == "__main__":
    main()
