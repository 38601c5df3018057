"""The sentences and headings of a log's write-up, in English and in Chinese. The terms of the field stay what they are in both."""

from __future__ import annotations

import datetime
import re
import string
from collections.abc import Mapping
from typing import Any

from podwright import slices
from podwright.report.maxtext import chinese
from podwright.report.maxtext.check_texts import CHECK_TEXTS
from podwright.report.records import Result, number
from podwright.report.wording import DASH, signed_percent, visible

LANGUAGES = ("en", "zh")
# key: (English, Chinese)
TEXTS: Mapping[str, tuple[str, str]] = {
    "title": ("{model} training record", "{model} 训练测试记录"),
    "overview": ("Model", "模型概况"),
    "item": ("item", "项目"),
    "value": ("value", "值"),
    "model": ("model", "模型"),
    "params": ("parameters", "总参数量"),
    "hardware": ("hardware", "硬件"),
    "framework": ("framework", "框架"),
    "results": ("Results", "测试结果"),
    "records": ("Runs", "我的测试记录"),
    "details": ("Training log", "详细训练日志"),
    "date": ("Date", "日期"),
    "config": ("Config", "配置"),
    "precision": ("Precision", "Precision"),
    "step_s": ("Step Time (s)", "Step Time (s)"),
    "tflops_device": ("TFLOPs/s/device", "TFLOPs/s/device"),
    "tflops_chip": ("TFLOPs/s/chip", "TFLOPs/s/chip"),
    "tokens_chip": ("Tokens/s/chip", "Tokens/s/chip"),
    "loss_final": ("Loss (final)", "Loss (final)"),
    "notes": ("Notes", "备注"),
    "step": ("Step", "Step"),
    "seconds": ("Time (s)", "耗时 (s)"),
    "figure": ("figure", "指标"),
    "median": ("median", "中位数"),
    "measured": ("measured", "实测"),
    "published": ("published", "官方"),
    "difference": ("difference", "差异"),
    "checks": ("Checks", "校验"),
    "excluded": ("Steps that the medians leave out", "稳态统计排除的 step"),
    "reason": ("reason", "原因"),
    "by": ("by", "依据"),
    "rule": ("rule", "规则"),
    "evidence": ("evidence", "数据"),
    "curves": ("Curves", "曲线"),
    "tokens_device": ("Tokens/s/device", "Tokens/s/device"),
    "mfu": ("MFU", "MFU"),
    "memory": ("HBM per device", "HBM/device"),
    "goodput": ("goodput", "goodput"),
    "wall": ("wall time", "总时长"),
    "params_text": (
        "{total}, {active} active per token, by its dimensions",
        "{total}，每 token 激活 {active}（按模型维度计算）",
    ),
    "not_known": ("not known", "未知"),
    "chips_text": (
        "{slice}: {chips} chips, {devices} devices ({each} per chip)",
        "{slice}：{chips} chips，{devices} devices（每 chip {each} 个）",
    ),
    "devices_text": (
        "number of devices: {devices}; the kind of chip is not known (name --recipe or --on SLICE)",
        "{devices} devices；芯片型号未知（请用 --recipe 或 --on 指明）",
    ),
    "no_hardware": (
        "not known: the log has no Num_devices (name --recipe or --on SLICE)",
        "未知：日志中没有 Num_devices（请用 --recipe 或 --on 指明）",
    ),
    "steady": (
        "Steady state: {step_s} s/step (median of {n} steps{iqr}), {tflops} TFLOP/s/{per}, {tokens} Tokens/s/{per}",
        "稳态性能：{step_s} s/step（{n} 步的中位数{iqr}），{tflops} TFLOP/s/{per}，{tokens} Tokens/s/{per}",
    ),
    "iqr": ("; interquartile range {low} to {high}", "；四分位区间 {low} 至 {high}"),
    "no_steady": (
        "No step time: all {n} steps are left out, for the reasons below.",
        "没有单步耗时：全部 {n} 步均因下列原因排除。",
    ),
    "only_first": (
        "No step time: the log has only the step that compiles. Give the log of a run with more steps.",
        "没有单步耗时：日志只有编译的一步。请使用步数更多的日志。",
    ),
    "only_starts": (
        "No step time: the log has only the {n} steps that compile and warm up. Give the log of a run with more steps.",
        "没有单步耗时：日志只有编译与 warmup 的 {n} 步。请使用步数更多的日志。",
    ),
    "page": ("Podwright report", "Podwright 报告"),
    "step_time_title": ("Step time", "单步耗时"),
    "step_time_label": ("Step time over steps", "单步耗时曲线"),
    "step_time_caption": (
        "Seconds of each step. Grey points are left out of the medians and are cut off at 2.5 times the median.",
        "每步耗时（秒）。灰点不计入中位数，超过中位数 2.5 倍处截断。",
    ),
    "loss_title": ("Loss", "Loss"),
    "loss_label": ("Loss over steps", "Loss 曲线"),
    "loss_caption": ("Training loss of each step.", "每步的训练 loss。"),
    "loss_caption_tests": (
        "Training loss of each step; the points are the evaluations.",
        "每步的训练 loss；圆点为评估结果。",
    ),
    "per_point": (" Each point is the mean of {n} steps.", "每个点为 {n} 步的均值。"),
    "nats": ("nats per token", "nats/token"),
    "loss_single": ("Loss: {first} (step {first_step})", "Loss：{first}（step {first_step}）"),
    "loss_text": (
        "Loss: {first} (step {first_step}) to {last} (step {last_step}), {change}",
        "Loss 变化：{first}（step {first_step}）→ {last}（step {last_step}），{change}",
    ),
    "of": ("{done} of {planned} steps", "{done}/{planned} 步"),
    "beyond": ("{done} steps, where {planned} were planned", "{done} 步，超过计划的 {planned} 步"),
    "done": ("{done} steps", "{done} 步"),
    "restarts": (
        "{attempts} attempts; steps computed again: {recomputed}, of which the later ones count.",
        "共 {attempts} 次启动；{recomputed} 步被重复计算，以最后一次为准。",
    ),
    "goodput_text": (
        "Goodput {share}: {productive} s of {total} s went into steps that count; compiling, restarts, waiting and repeated steps are the rest.",
        "Goodput {share}：{total} s 中有 {productive} s 用于有效 step，其余为编译、重启、等待与重复计算。",
    ),
    "published_source": ("Published: {source}.", "官方数据：{source}。"),
    "by_architecture": (
        "TFLOP/s are recomputed from the architecture ({source}); the log has {logged} TFLOP/s/device.",
        "TFLOP/s 按模型结构重新计算（{source}）；日志中为 {logged} TFLOP/s/device。",
    ),
    "more_rows": ("{n} more steps", "另有 {n} 步"),
    "more_reasons": ("and {n} more", "等，另有 {n} 步"),
    "slow": (
        "Steps that count and took over twice the median: {n}, such as step {step} with {seconds} s; the log has no explanation.",
        "{n} 个计入统计的 step 超过中位数两倍，例如 step {step} 为 {seconds} s；日志中没有说明原因。",
    ),
    # why a step is left out
    "compiles": ("first step of an attempt: compiles", "启动后的第一步：编译"),
    "warm_up": ("second step of an attempt: warm-up", "启动后的第二步：warmup"),
    "ramp_up": ("the batch size was still growing", "batch size 仍在增长"),
    "no_seconds": ("logged without its seconds: the profiler was switched", "日志没有耗时：profiler 启停"),
    "profiled": ("traced by the profiler", "profiler 采集期间"),
    "beside_profiler": ("slow beside the profiler's lines", "紧邻 profiler 采集，耗时偏大"),
    "dispatch": ("dispatch artefact, far below the median", "异步 dispatch 假象，远小于中位数"),
    "dispatch_other": (
        "dispatch artefact, far below the median: step {other} has its time",
        "异步 dispatch 假象，远小于中位数：耗时计入 step {other}",
    ),
    "pays_back": ("has the time of step {other}", "包含 step {other} 的耗时"),
    "impossible": ("faster than the peak of the hardware", "超过硬件峰值"),
    "no_time": ("its time is impossible: 0 s, below 0 s or no number", "耗时不可能：0 s、负数或不是数字"),
    "few_times": ("at least half of the steps have an impossible time", "至少一半 step 的耗时不可能"),
    "bursts": (
        "over a quarter of the steps are logged far shorter than others, which have their time: no step has its own",
        "超过四分之一的 step 计时远短于其他 step，其耗时计入后者：没有一个 step 的计时是它自己的",
    ),
    "no_more_data": ("waited for data that did not come", "数据耗尽，等待数据"),
    # how it ended
    "complete": ("Finished: {of}.", "完成：{of}。"),
    "upload_failed": (
        "Finished: {of}. Exit code {code} is of the upload of the log afterwards, not of the training: {detail}",
        "训练完成：{of}。EXIT_CODE={code} 来自之后的日志上传，不是训练错误：{detail}",
    ),
    "complete_exit_code": (
        "Finished: {of}. The process then ended with exit code {code}, after its last step.",
        "训练完成：{of}。最后一步之后进程以 EXIT_CODE={code} 结束。",
    ),
    "out_of_data": (
        "OUT_OF_DATA: {of}; then the training data ended (StopIteration). Exit code: {code}.",
        "OUT_OF_DATA（数据耗尽）：{of}，StopIteration。EXIT_CODE：{code}。",
    ),
    "loss_not_finite": (
        "NOT_FINITE: {of}, and the loss of the last one is NaN or infinite. Exit code: {code}.",
        "NOT_FINITE：{of}，最后一步的 loss 为 NaN 或无穷大。EXIT_CODE：{code}。",
    ),
    "not_finite": ("NOT_FINITE: {of}. {detail}", "NOT_FINITE：{of}。{detail}"),
    "of_run": ("{ending}: {of}. {detail}.", "{ending}：{of}。{detail}。"),
    "exit_0": (
        "Exit code 0 after {of}; how many were planned is not known without --recipe.",
        "{of}后 EXIT_CODE=0；计划步数未知（请用 --recipe 指明）。",
    ),
    "exit_0_early": (
        "Exit code 0 after {of}: it stopped before its last step. {detail}",
        "{of}后 EXIT_CODE=0：未到最后一步即停止。{detail}",
    ),
    "failure": (
        "{ending}: {of}. Cause: {detail}. Exit code: {code}.",
        "{ending}：{of}。原因：{detail}。EXIT_CODE：{code}。",
    ),
    "exit_code": (
        "CRASHED: exit code {code} after {of}; the log has no failure that is known.",
        "CRASHED：{of}后 EXIT_CODE={code}；日志中没有已知的错误。",
    ),
    "no_end": (
        "The log ends after {of} and does not say how the process ended.",
        "日志止于{of}，没有说明进程如何结束。",
    ),
    **CHECK_TEXTS,
}


def _singular(text: str) -> str:
    """English with `1 step` in place of `1 steps`."""
    return re.sub(r"(?<![\d,.])1 (more )?(step|line|attempt)s\b", lambda m: f"1 {m[1] or ''}{m[2]}", text)


class Words:
    """The texts of one language."""

    def __init__(self, language: str):
        self.language = language
        self._column = LANGUAGES.index(language)

    def __call__(self, key: str, **values: Any) -> str:
        text = string.Formatter().vformat(TEXTS[key][self._column], (), values)
        return text if self._column else _singular(text)

    def sentence(self, text: str) -> str:
        """A sentence that another part of a report has written in English."""
        return chinese.sentence(text) if self._column else text

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
        if self._column and r["ending_reason"] == "failure":
            detail = r["ending_zh"].get("cause", detail)
        detail = visible(detail).rstrip(".")
        text = self(r["ending_reason"], of=self.of_steps(r), code=code, detail=detail, ending=r["ending"])
        return text.strip()

    def fix(self, r: Result) -> str:
        """What to do about the ending; "" where there is nothing."""
        return str(r["ending_zh"].get("remedy", r["ending_fix"]) if self._column else r["ending_fix"])

    def reason(self, excluded: Result) -> str:
        """Why a step is left out."""
        key, other = excluded["reason"], excluded["other_step"]
        return self("dispatch_other" if key == "dispatch" and other is not None else key, other=other)

    def check(self, check: Result) -> str:
        """A check in a sentence."""
        kind, verdict = check["check"], check["verdict"]
        key = kind if kind in TEXTS and kind != "hosts" else f"{kind}_{verdict}"
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
        if self._column and values.get("what") == "the model":
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
