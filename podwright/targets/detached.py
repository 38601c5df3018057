"""detached.py PID_FILE ARGV...: write down who this process is, then become ARGV.

The process itself writes the file, so that a launcher killed right after the fork loses nothing.
"""

import json
import os
import sys

import psutil


def main() -> None:
    pid_file, *argv = sys.argv[1:]
    part = f"{pid_file}.part"
    with open(part, "w") as f:
        json.dump({"pid": os.getpid(), "created": psutil.Process().create_time()}, f)
    os.replace(part, pid_file)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
