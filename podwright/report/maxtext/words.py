"""The sentences and headings of a log's write-up, in English and in Chinese."""

from __future__ import annotations

import datetime
import functools
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from podwright import slices
from podwright.report.maxtext import chinese
from podwright.report.records import Result, number
from podwright.report.wording import DASH, signed_percent, visible

LANGUAGES = ("en", "zh")


@functools.cache
def texts() -> Mapping[str, Mapping[str, str]]:
    """By key, and there by language."""
    words: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text())
    return words


def _singular(text: str) -> str:
    """English with `1 step` in place of `1 steps`."""
    return re.sub(r"(?<![\d,.])1 (more )?(step|line|attempt)s\b", lambda m: f"1 {m[1] or ''}{m[2]}", text)


class Words:
    """The texts of one language."""

    def __init__(self, language: str):
        self.language = language
        self._chinese = language == "zh"

    def __call__(self, key: str, **values: Any) -> str:
        text = string.Formatter().vformat(texts()[key][self.language], (), values)
        return text if self._chinese else _singular(text)

    def sentence(self, text: str) -> str:
        """A sentence that another part of a report has written in English."""
        return chinese.sentence(text) if self._chinese else text

    def of_steps(self, r: Result) -> str:
        if r["steps_planned"] and r["steps"] > r["steps_planned"]:
            return self("beyond", done=f"{r['steps']:,}", planned=f"{r['steps_planned']:,}")
        if r["steps_planned"]:
            return self("of", done=f"{r['steps']:,}", planned=f"{r['steps_planned']:,}")
        return self("done", done=f"{r['steps']:,}")

    def ending(self, r: Result) -> str:
        """How the run ended, in a sentence."""
        code = DASH if r["exit_code"] is None else r["exit_code"]
        detail = r["ending_detail"]
        if self._chinese and r["ending_reason"] == "failure":
            detail = r["ending_zh"].get("cause", detail)
        detail = visible(detail).rstrip(".")
        text = self(r["ending_reason"], of=self.of_steps(r), code=code, detail=detail, ending=r["ending"])
        return text.strip()

    def fix(self, r: Result) -> str:
        """What to do about the ending; "" where there is nothing."""
        return str(r["ending_zh"].get("remedy", r["ending_fix"]) if self._chinese else r["ending_fix"])

    def reason(self, excluded: Result) -> str:
        """Why a step is left out."""
        key, other = excluded["reason"], excluded["other_step"]
        return self("dispatch_other" if key == "dispatch" and other is not None else key, other=other)

    def check(self, check: Result) -> str:
        """A check in a sentence."""
        kind, verdict = check["check"], check["verdict"]
        key = kind if kind in texts() and kind != "hosts" else f"{kind}_{verdict}"
        if verdict == "unknown":
            key = f"{key}_{check['why']}"
        elif kind in ("tokens", "times") and verdict == "warning":
            key = f"{kind}_{check['why']}"
        elif kind == "peak" and verdict == "ok" and check.get("precision") is None:
            key = "peak_fastest"
        elif kind == "peak" and "fastest" in check:
            key = "peak_of_any"
        elif kind == "flops" and verdict == "warning" and check.get("doubtful"):
            key = "flops_doubtful"
        elif kind == "hosts":
            key = "hosts_named" if check.get("what") else "hosts"
        elif kind == "loss":
            key = "loss_recovered" if check["recovered"] else "loss_nan"
        values = {name: decimals(v, 1) if isinstance(v, float) else v for name, v in check.items()}
        if self._chinese and values.get("what") == "the model":
            values["what"] = "此日志"
        for name in ("share", "mfu"):
            values[name] = percent(check.get(name))
        if kind == "flops" and check.get("mfu") is not None:
            values["mfu"] = self("mfu_text", share=percent(check["mfu"]))
        elif kind == "flops":
            values["mfu"] = ""
        values["ratio"] = decimals(check.get("ratio"), 2)
        values["n"] = f"{check.get('num', check.get('num_steps', 0)):,}"
        values["what"] = visible(check.get("what", ""))
        if kind == "conflict":
            values["what"] = self.sentence(values["what"])
        return self(key, **values)

    def steady(self, r: Result) -> str:
        s = r["steady_state"]
        if s["step_s"] is None:
            starts = set(r["excluded_counts"]) <= {"compiles", "warm_up"}
            key = "no_steady" if not starts else "only_first" if s["num_left_out"] == 1 else "only_starts"
            return self(key, n=s["num_left_out"])
        per = "chip" if s["tokens_per_s_per_chip"] is not None or s["tflops_per_chip"] is not None else "device"
        low_high = s["step_s_iqr"]
        iqr = self("iqr", low=decimals(low_high[0], 3), high=decimals(low_high[1], 3)) if low_high else ""
        return self(
            "steady",
            step_s=decimals(s["step_s"], 3),
            n=s["num_steps"],
            iqr=iqr,
            tflops=decimals(s[f"tflops_per_{per}"], 1),
            tokens=decimals(s[f"tokens_per_s_per_{per}"], 1),
            per=per,
        )

    def loss(self, r: Result) -> str:
        """ "" without a loss."""
        loss = r["loss"]
        if loss["first"] is None:
            return ""
        if loss["first_step"] == loss["last_step"]:
            return self("loss_single", first=decimals(loss["first"], 3), first_step=loss["first_step"])
        change = signed_percent(loss["last"] / loss["first"] - 1) if loss["first"] else DASH
        values = {name: decimals(loss[name], 3) for name in ("first", "last")}
        return self("loss_text", change=change, first_step=loss["first_step"], last_step=loss["last_step"], **values)

    def hardware(self, r: Result) -> str:
        e = r["environment"]
        if e["devices"] is None:
            return self("no_hardware")
        if e["chips"] is None:
            return self("devices_text", devices=e["devices"])
        same = e["slice"] and slices.parse(e["slice"]).num_devices == e["devices"]  # else the log has other devices
        name = e["slice"] if same else e["device_kind"]
        return self("chips_text", slice=name, chips=e["chips"], devices=e["devices"], each=e["devices_per_chip"])


def decimals(value: Any, places: int) -> str:
    """A number with so many decimals and its thousands apart; of a small one three digits."""
    amount = number(value)
    if amount is None:
        return DASH
    if amount and abs(amount) < 10**-places * 10:
        return f"{amount:.3g}"
    return f"{amount:,.{places}f}"


def percent(value: Any) -> str:
    """One decimal, or two significant digits below 1 %."""
    share = number(value)
    if share is None:
        return DASH
    return f"{100 * share:.2g} %" if 0 < abs(share) < 0.01 else f"{100 * share:.1f} %"


def day(seconds: Any) -> str:
    """The date in UTC."""
    known = number(seconds)
    return DASH if known is None else datetime.datetime.fromtimestamp(known, datetime.UTC).strftime("%Y-%m-%d")
