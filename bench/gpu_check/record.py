"""The result while it grows: one JSON file that is written anew at each change, and the table on screen.

Every row is there from the start as `left out`, so that an end from outside loses nothing but what was running.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

# In the table, in this order, where a row has them.
SHOWN = (
    *("step_s", "second_start_s", "ms_a_token", "samples_s", "tokens_s", "tflops", "first_step_s", "programs"),
    *("rollout_s", "update_s", "peak_gib", "worst_error", "ending", "resumed_from", "reason"),
)
# The time of ours is compared with that of these peers.
PEERS = {
    "pretrain one document": ("pretrain transformers",),
    "grpo": ("grpo trl",),
    "phase2": ("phase2 trainer",),
}


class Result:
    """`path`: None where nothing is kept."""

    def __init__(self, about: dict[str, Any], names: list[str], path: Path | None):
        self.about, self.path = about, path
        self.rows: dict[str, dict[str, Any]] = {name: {"row": name, "status": "left out"} for name in names}
        self._lock = threading.RLock()  # a signal may come while this thread writes

    def change(self, name: str, **values: Any) -> None:
        with self._lock:
            self.rows[name] |= values
            self._write()

    def measured(self, name: str, figures: dict[str, Any]) -> None:
        with self._lock:
            self.rows[name].setdefault("figures", []).append(figures)
            self._write()

    def interrupt(self) -> None:
        """The last change: what was running is not said to have failed by itself."""
        with self._lock:
            for row in self.rows.values():
                if row["status"] == "running":
                    row["status"] = "interrupted"
            self._write()
            self.path = None

    def _write(self) -> None:
        """Whole or not at all: the file beside it takes its place."""
        if self.path:
            part = self.path.with_suffix(".part")
            part.write_text(self.text())
            os.replace(part, self.path)

    def text(self) -> str:
        """One line a row, so that two results can be compared line by line."""
        document = self.about | {"times_faster_than_peers": self.ratios()}
        head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items())
        rows = ",\n".join(f"  {line}" for line in map(json.dumps, self.rows.values()))
        return f'{{\n{head},\n "rows": [\n{rows}\n ]\n}}\n'

    def figure(self, name: str, key: str) -> Any:
        """The last one that a row measured."""
        figures = self.rows.get(name, {}).get("figures", [])
        return next((line[key] for line in reversed(figures) if key in line), None)

    def steps(self, name: str) -> dict[str, float]:
        """Seconds a step of each variant that a row measured; the variant of most rows has no name."""
        figures = self.rows.get(name, {}).get("figures", [])
        return {line.get("variant", ""): line["step_s"] for line in figures if line.get("step_s")}

    def ratios(self) -> dict[str, float]:
        """Of each variant of a peer, with the same variant of ours or its only one. A dry check measures none."""
        ratios: dict[str, float] = {}
        if self.about.get("dry"):
            return ratios
        for name, peers in PEERS.items():
            ours = self.steps(name)
            for peer in peers:
                for variant, theirs in self.steps(peer).items():
                    if step_s := ours.get(variant, ours.get("")):
                        ratios[f"{peer} {variant}".strip()] = round(theirs / step_s, 2)
        return ratios

    def line(self, name: str) -> str:
        row = self.rows[name]
        shown = {key: self.figure(name, key) for key in SHOWN} | {"reason": row.get("reason")}
        if len(steps := self.steps(name)) > 1:
            shown["step_s"] = steps
        text = "  ".join(f"{key} {value}" for key, value in shown.items() if value is not None)
        return f"{name:36}  {row['status']:9}  {row.get('seconds', 0):5.0f} s  {text}"

    def table(self) -> str:
        ratios = [f"{peer}: ours takes 1/{ratio} of its time" for peer, ratio in self.ratios().items()]
        return "\n".join([*map(self.line, self.rows), *ratios])
