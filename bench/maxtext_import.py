"""Import of every launch script in a checkout of recipes: are the words of `xpk workload create` those that bash passes outside a sandbox?

python bench/maxtext_import.py PATH [--out bench/results/maxtext_import.json]

PATH is a checkout of https://github.com/AI-Hypercomputer/tpu-recipes. Each script that calls xpk is read as it is and with values typed for
what a user fills in, and run by bash with stand-ins on PATH; the words must be equal byte for byte. Then the command of its recipe is
run, and must start the same program with the same words and variables as the command in the script (blanks within the flags of the compiler aside).
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stamp import keep, stamp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from podwright.errors import UserError  # noqa: E402
from podwright.recipe import load  # noqa: E402
from podwright.recipe.maxtext import lint, tree  # noqa: E402
from podwright.recipe.maxtext.schema import MaxTextRecipe, command, filled  # noqa: E402
from podwright.recipe.script_text import with_placeholders  # noqa: E402
from podwright.sandbox import read  # noqa: E402
from tests.unit.recipe.maxtext.oracle import NOW, USER, called, started  # noqa: E402

TYPED = {
    "PROJECT_ID": "a-project",
    "CLUSTER_NAME": "a-cluster",
    "ZONE": "us-central1-ai1a",
    "BASE_OUTPUT_DIR": "gs://a-bucket/runs",
    "WORKLOAD_IMAGE": "gcr.io/a-project/image:tag",
    "ARTIFACT_DIR": "gs://a-bucket/logs",
    "your-gcs-bucket-path": "gs://a-bucket/runs",
}


def with_values(text: str, values: dict[str, str]) -> str:
    """As a user fills a script in: each line that assigns a variable of `values` is followed by one with its value."""
    value_of_line = r"""(?:"[^"\n]*"|[^\s'"&;\\]*)[ \t]*(?:\#.*)?$"""
    for name, value in values.items():
        word = shlex.quote(value).replace("\\", r"\\")
        line = rf"(?m)^([ \t]*(?:export[ \t]+)?{re.escape(name)}=){value_of_line}"
        text = re.sub(line, rf"\g<0>\n\g<1>{word}", text)
    return text


def by_bash(path: Path, text: str, files: dict[str, str], values: dict[str, str]) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        script, home = Path(folder, "script"), Path("home")
        script.mkdir()
        for name, content in {**files, path.name: with_placeholders(text, values)[0]}.items():
            (script / name).write_text(with_values(content, values))
        variables = {name: value for name, value in values.items() if name.isidentifier()}
        return called(script / path.name, Path(folder) / home, variables)


def equal(path: Path, values: dict[str, str]) -> dict[str, Any]:
    """One script with one set of values."""
    text, files = tree.text_of(path), tree.siblings(path)
    # the home of the oracle differs from run to run: a script that passes it on would not be equal
    given = {"USER": USER, "HOME": "/none", **values}
    began = time.process_time()
    imported = read.read(path, text, given, NOW, files)
    recipe = load.require(load.parse(imported.recipe), MaxTextRecipe)
    seconds = time.process_time() - began
    calls = by_bash(path, text, files, values)
    same = calls == [list(imported.argv)]
    row: dict[str, Any] = {
        "argv_equal": same,
        "words": len(imported.argv),
        "bytes": len("\0".join(imported.argv).encode()),
    }
    row |= {
        "name": recipe.name,
        "topology": recipe.topology,
        "arguments": len(recipe.arguments),
        "xla_flags": len(recipe.xla_flags),
    }
    row |= {"read_cpu_s": round(seconds, 4), "findings": [f.check for f in lint.of_recipe(recipe) if f.level != "info"]}
    if values:
        fill = {
            **values,
            "WORKLOAD_NAME": next(w for w in imported.argv if w.startswith("--workload=")).partition("=")[2],
        }
        fill["YOUR_GCS_BUCKET_PATH"] = values["your-gcs-bucket-path"]
        original = next(w for w in imported.argv if w.startswith("--command=")).partition("=")[2]
        row["command_equal"] = alike(started(original), started(filled(command(recipe), fill)))
    return row


def alike(original: tuple[list[str], dict[str, str]], ours: tuple[list[str], dict[str, str]]) -> bool:
    """Whether both start one program. Of an argument that is there twice the last counts."""
    (words, variables), (own_words, own_variables) = original, ours
    last = list({word.partition("=")[0]: word for word in words}.values())
    flags = [v.pop("LIBTPU_INIT_ARGS", "").split() for v in (variables, own_variables)]
    return last == own_words and flags[0] == flags[1] and variables == own_variables


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, metavar="PATH")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    scripts, others = tree.scripts(options.path)
    rows: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for path in scripts:
        name = str(path.relative_to(options.path))
        try:
            rows[name] = {"as it is": equal(path, {}), "filled in": equal(path, TYPED)}
        except UserError as e:
            refused[name] = e.what
    git = ["git", "-C", str(options.path), "rev-parse", "HEAD"]
    cases = [case for row in rows.values() for case in row.values()]
    result = stamp(__file__) | {
        "tree": subprocess.run(git, capture_output=True, text=True).stdout.strip(),
        "scripts_read": len(rows),
        "argv_equal": f"{sum(case['argv_equal'] for case in cases)} of {len(cases)}",
        "command_equal": f"{sum(case.get('command_equal', False) for case in cases)} of {len(rows)}",
        "read_cpu_s_of_all": round(sum(row["as it is"]["read_cpu_s"] for row in rows.values()), 2),
        "rows": rows,
        "refused": refused,
        "scripts_of_other_launchers": len(others),
    }
    keep(result, options.out)
    return 0 if all(case["argv_equal"] and case.get("command_equal", True) for case in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
