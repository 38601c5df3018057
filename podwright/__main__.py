"""`python -m podwright` is `podwright`."""

import sys

from podwright.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
