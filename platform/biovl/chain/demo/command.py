"""Run all jobs on a synthetic sample, serve the results, and write an HTML summary.

biovl demo [FOLDER] [--serve]
biovl demo [FOLDER] --data pmc       100 open-access articles of PMC and BiomedCLIP, downloaded
"""

import argparse
from pathlib import Path


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least 1, got {number}")
    return number


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="demo, or demo-pmc")
    parser.add_argument(
        "--data", choices=("synthetic", "pmc"), default="synthetic", help="pmc needs internet"
    )
    parser.add_argument(
        "--articles",
        type=_positive,
        help="how many synthetic articles to generate (default: 48, or those of the folder)",
    )
    parser.add_argument("--serve", action="store_true", help="keep serving until Ctrl-C")
    arguments = parser.parse_args()
    # All jobs, with Ray and PyTorch.
    from biovl.chain.demo.run import run

    folder = arguments.folder or Path("demo-pmc" if arguments.data == "pmc" else "demo")
    run(folder, arguments.articles, arguments.serve, arguments.data)
