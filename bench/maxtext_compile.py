"""What `podwright plan --compile` says of a MaxText recipe, held against MaxText's own train_compile, typed by hand.

    python bench/maxtext_compile.py RECIPE [K=V ...] --on SLICE [--depth quick|full] [--log FILE] [--cache DIR] [--out FILE]

RECIPE is a file that `podwright recipe import` wrote. FILE is what MaxText printed when somebody typed the same compile, with
JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 ALLOW_MULTIPLE_LIBTPU_LOAD=1 and the flags by `compile_xla_flags` instead of LIBTPU_INIT_ARGS:

    python -m maxtext.trainers.pre_train.train_compile .../maxtext/configs/base.yml ARGUMENTS run_name=x base_output_directory=DIR \\
        compile_topology=tpu7x-128 compile_topology_num_slices=1 compile_xla_flags="FLAGS"
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

import compiled_plan
from stamp import keep, stamp

GIB = 1024**3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", metavar="K=V")
    parser.add_argument("--on", required=True, metavar="SLICE")
    parser.add_argument("--depth", default="quick", choices=("quick", "full"))
    parser.add_argument("--log", type=Path)
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
    if args.log:
        hand = {name: int(size) for name, size in re.findall(r"(\w+)_in_bytes=(\d+)", args.log.read_text())}
        (program,) = plan["programs"]
        parts = (("temporaries", "temp"), ("arguments", "argument"), ("aliased", "alias"))
        result["typed_by_hand"] = hand
        result["difference_percent"] = {
            part: round(100 * (program[f"{part}_gib"] * GIB / hand[f"{size}_size"] - 1), 4) for part, size in parts
        }
    keep(result, args.out)


if __name__ == "__main__":
    main()
