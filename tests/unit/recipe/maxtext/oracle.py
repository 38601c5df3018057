"""What bash itself passes to xpk: the script run by bash with stand-ins on PATH. For scripts that are ours or public, not for hostile ones."""

import os
import subprocess
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

NOW = datetime(2026, 3, 7, 8, 9, 5, tzinfo=UTC)
USER = "a_test_er"
_XPK = """#!/bin/bash
{ printf '%s\\0' "$#" "$0"; printf '%s\\0' "$@"; } >> "$CALLS"
"""
_PYTHON = """#!/bin/bash
{ printf '%s\\0' "$#" python3; printf '%s\\0' "$@"; } >> "$CALLS"
"""
_UV = _PYTHON.replace("python3", "uv")
_DATE = f"""#!/bin/bash
exec /usr/bin/date -d @{int(NOW.timestamp())} "$@"
"""


def called(script: Path, folder: Path, values: Mapping[str, str]) -> list[list[str]]:
    """The words, from xpk on, of every call of `xpk workload create` that `script` makes, run in its own folder with `values` exported.

    `folder`: an empty one, for stand-ins and a home.
    """
    programs, calls = folder / "bin", folder / "calls"
    (folder / ".local" / "bin" / "venv" / "bin").mkdir(parents=True)
    (folder / ".local" / "bin" / "venv" / "bin" / "activate").write_text("")
    programs.mkdir()
    for name in ("pip", "gcloud", "kubectl", "docker", "gsutil", "git", "curl"):
        (programs / name).write_text("#!/bin/bash\nexit 0\n")
    for name, text in {"xpk": _XPK, "python3": _PYTHON, "python": _PYTHON, "date": _DATE, "uv": _UV}.items():
        (programs / name).write_text(text)
    for program in programs.iterdir():
        program.chmod(0o755)
    calls.write_text("")
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(folder),
        "USER": USER,
        "CALLS": str(calls),
        "TZ": "UTC",
        "LANG": "C.UTF-8",
    }
    subprocess.run(
        ["/bin/bash", script.name],
        cwd=script.parent,
        env=environment | dict(values),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    fields = calls.read_bytes().split(b"\0")
    records, position = list[list[str]](), 0
    while position < len(fields) - 1:
        count = int(fields[position])
        words = [os.fsdecode(word) for word in fields[position + 1 : position + 2 + count]]
        records.append([os.path.basename(words[0]), *words[1:]])
        position += 2 + count
    starts = [
        next((n for n, word in enumerate(words[:4]) if os.path.basename(word).startswith("xpk")), 4)
        for words in records
    ]
    calls = [["xpk", *words[start + 1 :]] for words, start in zip(records, starts, strict=True)]
    return [words for words in calls if words[1:3] == ["workload", "create"]]


_FIRST = """#!/bin/bash
{ printf '%s\\0' "$#" "$@"; env -0; } > "$OUT"
"""
_OWN = {"PATH", "OUT", "PWD", "OLDPWD", "SHLVL", "_", "BASH_FUNC_cd%%"}


def started(command: str) -> tuple[list[str], dict[str, str]]:
    """The words and the variables with which the command of a container starts Python; other programs do nothing, cd neither."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("python3", "python", "pip", "gsutil", "gcloud", "cp", "mkdir"):
            program = Path(folder, name)
            program.write_text(_FIRST if name.startswith("python") else "#!/bin/bash\nexit 0\n")
            program.chmod(0o755)
        out = Path(folder, "out")
        environment = {"PATH": f"{folder}:/usr/bin:/bin", "OUT": str(out)}
        text = f"cd() {{ :; }}; {command}"
        done = subprocess.run(
            ["bash", "-c", text], env=environment, cwd=folder, capture_output=True, timeout=20, check=False
        )
        assert done.returncode == 0, done.stderr
        count, *fields = out.read_bytes().decode().split("\0")[:-1]
    variables = dict(field.split("=", 1) for field in fields[int(count) :])
    return fields[: int(count)], {name: value for name, value in variables.items() if name not in _OWN}
