"""`python -m podwright.train RUN_DIR --attempt N` trains one attempt of a run; `python -m podwright.train VERB ...` answers one question."""

from __future__ import annotations

import sys

from podwright.train import attempt, verbs


def main() -> int:
    """The exit status of the attempt, or of the verb: 0 answered, 2 the user has to change something."""
    verb = verbs.VERBS.get(sys.argv[1] if len(sys.argv) > 1 else "")
    return verbs.answer(verb, sys.argv[2:]) if verb else attempt.main()


if __name__ == "__main__":
    sys.exit(main())
