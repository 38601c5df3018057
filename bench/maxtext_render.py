"""Every launch script of a checkout of tpu-recipes, rendered, against the manifest that its own version of xpk makes.

python bench/maxtext_render.py PATH [--out bench/results/maxtext_render-DATE.json]

The scripts stay where they are. For each one: the recipe is imported and rendered; the command of the rendered JobSet and the options of
the rendered submit script are given to a dry run of the real xpk of the script's version (of 1.3.0 for 1.4.0, which PyPI lacks and whose
pods are the same); `differences` lists each field in which the two manifests differ. `script_words` says whether the command has the same
words as that of the script itself, with the arguments of a profiler at most added.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from stamp import keep, stamp  # noqa: E402

from podwright.errors import UserError  # noqa: E402
from podwright.recipe import load  # noqa: E402
from podwright.recipe.maxtext import xpk  # noqa: E402
from podwright.recipe.maxtext.schema import MaxTextRecipe, command  # noqa: E402
from podwright.sandbox import read  # noqa: E402
from podwright.targets.gke import jobset, rendering, workload, xpk_shape  # noqa: E402
from podwright.targets.settings.gke import GkeSettings  # noqa: E402
from tests import real_xpk  # noqa: E402

OWN = {
    "kind": "gke",
    "project": "my-project",
    "cluster": "my-cluster",
    "zones": ["us-central1-a"],
    "bucket": "gs://my-bucket/runs",
    "image": "img:1",
}
NAME = "me-run-1"
STAND_INS = {"1.4.0": "1.3.0"}
NOW = datetime(2026, 11, 23, 12, 0)


def row(path: Path, root: Path, home: Path) -> dict[str, Any]:
    """The comparison of one script; `refused` where it cannot be imported or rendered."""
    name = path.relative_to(root).parent.as_posix()
    files = {p.name: p.read_text(errors="replace") for p in path.parent.iterdir() if p.is_file() and p != path}
    typed = {"USER": "me"}
    try:
        imported = read.read(path, path.read_text(), typed, NOW, files)
        recipe = load.require(load.parse(imported.recipe), MaxTextRecipe)
        machine = str(jobset.slice_of(recipe).names()["machine_type"])
        own = GkeSettings.model_validate(OWN | {"machine_type": machine})
        own_names = ("PROJECT_ID", "CLUSTER_NAME", "ZONE", "BASE_OUTPUT_DIR", "WORKLOAD_IMAGE", "ARTIFACT_DIR", "WORKLOAD_NAME")  # fmt: skip
        values = {each: f"/mnt/{each.lower()}" for each in recipe.variables if each not in own_names}
        rendered = rendering.render(recipe, own, "pod", values)
        filled = workload.resolved(recipe, workload.values(recipe, own, "pod", values))
    except UserError as e:
        return {"recipe": name, "refused": str(e)}
    text = rendered.files[rendering.MANIFEST].replace("${WORKLOAD_NAME}", NAME)
    ours = yaml.safe_load(text)
    profiled = workload.profiled(filled)[0]
    version = STAND_INS.get(recipe.versions.xpk, recipe.versions.xpk or xpk.NEWEST)
    program = real_xpk.installed(version)
    options = {k: v for k, v in profiled.xpk.items() if k not in xpk_shape.UNSUPPORTED}
    slice_ = jobset.slice_of(recipe)
    argv = [
        *(f"--cluster={own.cluster}", f"--project={own.project}", f"--zone={own.zones[0]}", f"--workload={NAME}"),
        f"--docker-image={profiled.image}",
        f"--device-type={slice_.names()['xpk']}",
        f"--num-slices={recipe.num_slices}",
        *(f"--{key}={value}" if value else f"--{key}" for key, value in options.items()),
        f"--command={command(profiled).replace('${WORKLOAD_NAME}', NAME)}",
    ]
    containers = ours["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    for container in containers:
        container.pop("envFrom")  # the Secret of variables, which xpk knows nothing of
    start = time.time()
    theirs = real_xpk.manifest(program, argv, home)
    seconds = time.time() - start
    return {
        "recipe": name,
        "xpk": version,
        "containers": len(containers),
        "differences": real_xpk.differences(ours, theirs),
        "script_words": same_words(path, typed, files, recipe, own, values),
        "added": rendered.added,
        "left_to_xpk": xpk_shape.left_to_xpk(recipe),
        "dry_run_s": round(seconds, 1),
    }


def same_words(
    path: Path,
    typed: dict[str, str],
    files: dict[str, str],
    recipe: MaxTextRecipe,
    own: GkeSettings,
    values: dict[str, str],
) -> bool:
    """Whether the container's command has the words that the script itself passes, for the same values of its variables.

    The order of exports and the number of blanks between compiler flags may differ.
    """
    known = workload.values(recipe, own, "pod", values)
    script = read.read(path, path.read_text(), typed | known, NOW, files)
    options = xpk.options(script.argv, "").values
    known["WORKLOAD_NAME"] = options["workload"]
    ours, theirs = (words(text) for text in (command(workload.resolved(recipe, known)), options["command"]))
    begin = [each.index(recipe.launch.module) for each in (ours, theirs)]
    return Counter(ours) == Counter(theirs) and ours[begin[0] :] == theirs[begin[1] :]


def words(text: str) -> list[str]:
    return [" ".join(word.split()).replace("= ", "=") for word in shlex.split(text)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    scripts = sorted((args.tree / "training").rglob("run_recipe.sh"))
    with tempfile.TemporaryDirectory() as home:
        rows = []
        for path in scripts:
            rows.append(row(path, args.tree / "training", Path(home)))
            print(rows[-1], file=sys.stderr, flush=True)
    compared = [r for r in rows if "refused" not in r]
    equal = sum(not r["differences"] for r in compared)
    summary = {
        "scripts": len(rows),
        "rendered": len(compared),
        "equal": equal,
        "same_words": sum(r["script_words"] for r in compared),
    }
    return keep({**stamp(__file__), **summary, "rows": rows}, args.out)


if __name__ == "__main__":
    sys.exit(main())
