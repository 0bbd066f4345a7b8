"""``biovl tables`` in a checkout that is not installed."""

from biovl.__main__ import run

if __name__ == "__main__":
    run("tables")
