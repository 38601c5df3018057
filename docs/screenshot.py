"""A picture of a run's report: `python docs/screenshot.py RUN_OR_HTML OUT.png [WIDTH [HEIGHT]] [--dark]`, with headless Chromium."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def chromium(page: Path, *flags: str) -> str:
    """What Chromium prints when it opens `page` with `flags` and a profile of its own."""
    found = browser()
    if found is None:
        raise FileNotFoundError(f"none of {', '.join(BROWSERS)} is installed")
    with tempfile.TemporaryDirectory() as profile:
        argv = [found, *FLAGS, f"--user-data-dir={profile}", *flags, page.resolve().as_uri()]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout


def screenshot(page: Path, out: Path, width: int, height: int, dark: bool = False) -> None:
    """A PNG of the upper `height` pixels of `page` in a window `width` pixels wide."""
    theme = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.png"
        chromium(page, f"--screenshot={raw}", f"--window-size={width},{height}", *theme)
        from PIL import Image

        with Image.open(raw) as picture:
            picture.convert("RGB").save(out, optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a run directory with a report, or an HTML file")
    parser.add_argument("out", type=Path)
    parser.add_argument("width", type=int, nargs="?", default=1120)
    parser.add_argument("height", type=int, nargs="?", default=1180)
    parser.add_argument("--dark", action="store_true", help="as on a page in dark mode")
    args = parser.parse_args()
    page = args.source / "report" / "report.html" if args.source.is_dir() else args.source
    if not page.is_file():
        print(f"there is no {page}; type `podwright report {args.source}` first", file=sys.stderr)
        return 2
    screenshot(page, args.out, args.width, args.height, args.dark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
