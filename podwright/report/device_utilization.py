"""What a report says of the devices' use: averages over the steps, their course, and what to change where they were idle."""

from __future__ import annotations

import statistics

from podwright.report import timing
from podwright.report.figures import style
from podwright.report.figures.drawing import Plot, raw_and_smooth
from podwright.report.figures.series import MOST_POINTS, Line
from podwright.report.records import Records, Result, inner, known, number
from podwright.report.wording import percent
from podwright.rundir import Record

MUCH_WAITING = 0.05
LITTLE_USE = 50.0  # percent
_SHOWN = (
    ("utilization_percent", "utilization, %", "blue"),
    ("memory_mib", "memory in use, GiB", "teal"),
    ("power_w", "power, W", "orange"),
)
_MEANS = {
    "gpu": "Mean of the GPUs",
    "tpu": "Mean of the TPU devices: memory used by the run",
    "cpu": "Mean of the processes: utilization of their CPU cores, and memory",
}


def of_lines(records: Records) -> Result:
    """What every kind that trains on lines in PyTorch says of its steps and its devices."""
    steps = records.steps()
    return {
        "epochs": timing.last(steps, "epoch"),
        "samples": timing.last(steps, "samples"),
        "grad_norm": timing.trend(steps, "grad_norm"),
        "data_wait_share": timing.share_waited(timing.warm_steps(records)),
        "peak_memory_gib": max(known(steps, "peak_memory_gib"), default=None),
        "device_use": figures(records),
        "warnings": warnings(records),
        "data": records.last("environment").get("data"),
    }


def figures(records: Records) -> Result | None:
    """Over all processes, and of each; None where nothing was sampled."""
    samples = _during_steps(records)
    if not samples:
        return None
    processes = sorted({s["process"] for s in samples})
    each = []
    for process in processes:
        of_process = [sample for sample in samples if sample["process"] == process]
        each.append({"process": process, **_means(of_process)})
    return _means(samples) | {"processes": each}


def warnings(records: Records) -> list[str]:
    sentences = []
    waited = timing.share_waited(timing.warm_steps(records))
    if waited is not None and waited > MUCH_WAITING:
        parts = inner(records.raw, "training.gradient_accumulation_steps") or 1
        split = ", with training.gradient_accumulation_steps as much smaller" if parts > 1 else ""
        fix = f"give each process more CPU cores, or type a larger per_device_batch_size{split}"
        sentences.append(f"The devices waited for data for {percent(waited)} of the step time: {fix}.")
    gpus = [s for s in _during_steps(records) if s["device"].startswith("gpu")]
    busy = known(gpus, "utilization_percent")
    if busy and (mean := statistics.fmean(busy)) < LITTLE_USE:
        room = 1 - max(known(gpus, "memory_mib"), default=0.0) / max(known(gpus, "memory_total_mib"), default=1.0)
        more = (
            "a larger per_device_batch_size"
            if room > 0.2
            else "training.fsdp=true, and then a larger per_device_batch_size"
        )
        sentences.append(
            f"GPU utilization during steps was {mean:.0f} %, and {percent(room)} of GPU memory was never used: type {more}."
        )
    return sentences


def plot(records: Records, result: Result) -> Plot | None:
    """Over the time of the last attempt, the mean of all processes."""
    last = max((s["attempt"] for s in records.devices), default=None)
    samples = [s for s in records.devices if s["attempt"] == last and s["time_s"] is not None]
    shown = [(name, unit, color) for name, unit, color in _SHOWN if known(samples, name)]
    if not shown:
        return None
    fig, axes = style.figure(
        *(unit for _, unit, _ in shown), x="minutes", height=style.HEIGHT if len(shown) < 3 else style.HEIGHT + 90
    )
    for ax, (name, _, color) in zip(axes, shown, strict=True):
        raw_and_smooth(ax, _course(samples, name, 1 / 1024 if name == "memory_mib" else 1.0), color)
        ax.set_ylim(bottom=0)
    kind = samples[0]["device"].rstrip("0123456789")
    caption = f"{_MEANS.get(kind, 'Mean of the devices')}, during the last attempt. The samples are in `attempts/{last}/devices-*.csv`."
    return Plot("devices", "Device utilization", caption, style.to_svg(fig, "Device utilization over time"))


def _course(samples: list[Record], name: str, factor: float) -> Line:
    begin = min(s["time_s"] for s in samples)
    width = max(1.0, (max(s["time_s"] for s in samples) - begin) / MOST_POINTS)
    groups: dict[int, list[Record]] = {}
    for sample in samples:
        if sample[name] is not None:
            groups.setdefault(int((sample["time_s"] - begin) / width), []).append(sample)
    points = sorted(groups)
    minutes = [n * width / 60 for n in points]
    means = [factor * statistics.fmean(known(groups[n], name)) for n in points]
    return Line(minutes, means, 1)


def _during_steps(records: Records) -> list[Record]:
    spans = [
        (attempt.number, start, stop)
        for attempt in records.attempts
        for name, start, stop in timing.spans(records, attempt.number, attempt.end)
        if name == records.main
    ]
    during = []
    for sample in records.devices:
        time_s = sample["time_s"] or 0.0
        if any(sample["attempt"] == number and start <= time_s <= stop for number, start, stop in spans):
            during.append(sample)
    return during


def _means(samples: list[Record]) -> Record:
    means = {}
    for name in ("utilization_percent", "memory_mib", "power_w", "temperature_c"):
        values = [v for s in samples if (v := number(s[name])) is not None]
        means[name] = statistics.fmean(values) if values else None
        if name in ("memory_mib", "temperature_c"):
            means[f"{name}_max"] = max(values, default=None)
    return means | {"num_samples": len(samples)}
