"""What `podwright plan --compile` says of a MaxText recipe, held against MaxText's own train_compile, typed by hand.

    python bench/maxtext_compile.py RECIPE [K=V ...] --on SLICE [--depth quick|full] [--against tpu7x-128] [--cache DIR] [--out FILE]

RECIPE is a file that `podwright recipe import` wrote. `--against` names the topology as MaxText does, and then the same arguments are
compiled a second time, to the end, by a command that shares nothing with the product but the environment that it installed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import compiled_plan
from stamp import keep, stamp

from podwright.recipe import load
from podwright.recipe.maxtext.schema import MaxTextRecipe

GIB = 1024**3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", metavar="K=V")
    parser.add_argument("--on", required=True, metavar="SLICE")
    parser.add_argument("--depth", default="quick", choices=("quick", "full"))
    parser.add_argument("--against", default="", metavar="TOPOLOGY")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/podwright").expanduser())
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    begin = time.monotonic()
    plan = compiled_plan.document(args.recipe, args.on, args.overrides, args.cache, args.depth)
    if "programs" not in plan:
        sys.exit(f"no plan: {plan}")
    result: dict[str, Any] = {
        **stamp(__file__),
        "recipe": plan["recipe"],
        "on": args.on,
        "overrides": args.overrides,
        "depth": args.depth,
        "seconds": round(time.monotonic() - begin, 1),
        "verdict": plan["verdict"],
        "findings": [f"{f['level']}: {f['message']}" for f in plan["findings"]],
        "programs": plan["programs"],
    }
    if args.against and plan["programs"]:
        recipe = load.require(load.load(args.recipe, args.overrides), MaxTextRecipe)
        result["by_hand"] = hand = by_hand(recipe, args.against, args.cache)
        program = plan["programs"][0]
        result["difference_percent"] = {
            name: round(100 * (program[key] - hand[size] / GIB) / (hand[size] / GIB), 4)
            for name, key, size in (
                ("temporaries", "temporaries_gib", "temp_size"),
                ("arguments", "arguments_gib", "argument_size"),
            )
        }
    keep(result, args.out)


def by_hand(recipe: MaxTextRecipe, topology: str, cache: Path) -> dict[str, float]:
    """The bytes of MaxText's own `Memory analysis` line, and the seconds it took."""
    folder = cache / f"maxtext-{recipe.versions.maxtext}"
    (base,) = folder.glob("lib/python3*/site-packages/maxtext/configs/base.yml")
    scratch = tempfile.mkdtemp()
    arguments = {k: v for k, v in recipe.arguments.items() if k not in ("run_name", "base_output_directory")}
    arguments |= {"run_name": "x", "base_output_directory": scratch, "compile_topology": topology}
    arguments |= {"compile_topology_num_slices": "1", "compile_xla_flags": " ".join(recipe.xla_flags)}
    argv = [str(folder / "bin" / "python"), "-m", "maxtext.trainers.pre_train.train_compile", str(base)]
    argv += [f"{key}={value}" for key, value in arguments.items()]
    if arguments.get("use_tokamax_gmm") == "True":
        argv.append("--tokamax_cross_compile=true")
    tpu = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "PYTHONPATH": ""}
    begin = time.monotonic()
    done = subprocess.run(argv, env=os.environ | tpu, capture_output=True, text=True, cwd=scratch)
    sizes = re.findall(r"(\w+)_in_bytes=(\d+)", done.stdout)
    if not sizes:
        sys.exit(f"train_compile failed: {done.stderr[-2000:]}")
    return {name: int(size) for name, size in sizes} | {"seconds": round(time.monotonic() - begin, 1)}


if __name__ == "__main__":
    main()
