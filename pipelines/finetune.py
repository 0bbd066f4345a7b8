"""Run ``biovl finetune`` from a checkout, without installing the package."""

from biovl.__main__ import run

if __name__ == "__main__":
    run("finetune")
