"""`python -m podwright.train RUN_DIR --attempt N` trains one attempt of a run; `python -m podwright.train VERB ...` answers one question.

`--messages FD` before a verb names the open file that takes what the verb has to say to a person.
"""

from __future__ import annotations

import logging
import sys
import warnings

from podwright.train import attempt, verbs


def main() -> int:
    """The exit status of the attempt, or of the verb: 0 answered, 2 the user has to change something."""
    words = sys.argv[1:]
    if words[:1] == ["--messages"]:
        # What libraries log, some of them from native code, stays out of it.
        sys.stderr = open(int(words[1]), "w", buffering=1)  # noqa: SIM115  until the process ends
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        words = words[2:]
    verb = verbs.VERBS.get(words[0] if words else "")
    return verbs.answer(verb, words[1:]) if verb else attempt.main()


if __name__ == "__main__":
    sys.exit(main())
