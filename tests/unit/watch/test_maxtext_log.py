"""Logs of MaxText: every form of its lines, restarts, several hosts, and logs that are damaged."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from podwright.counted_steps import read_steps
from podwright.rundir import RunDir, read_events, read_jsonl
from podwright.watch import maxtext_log
from podwright.watch.maxtext_log import LogEnd, LogState

ABSL = "I1121 02:23:05.018744 140579179993984 metric_logger.py:265] "


class ReadLog:
    """What the records of a log say, of which the reader has seen one piece after another."""

    def __init__(self, pieces: Iterable[bytes]):
        with tempfile.TemporaryDirectory() as folder:
            run = RunDir(Path(folder))
            run.attempt(1).mkdir(parents=True)
            with run.log(1).open("ab", buffering=0) as f:
                for piece in pieces:
                    f.write(piece)
                    maxtext_log.follow(run)
            maxtext_log.follow(run, to_end=True)
            self.steps = list(read_jsonl(run.metrics))
            self.counted = read_steps(run, "maxtext")
            self.events = read_events(run.events)
            self.state: LogState = maxtext_log.state_of(run, 1)
            self.known = self.state.known
            self.end: LogEnd = maxtext_log.end_of(run.log(1), self.state.start_at)

    def column(self, name: str) -> list[Any]:
        return [step.get(name) for step in self.steps]

    @property
    def endings(self) -> list[str]:
        return [failure["ending"] for failure in self.end.failures]

    @property
    def starts(self) -> list[int]:
        """The rows with which a start of the process begins."""
        starts = [step.get("start", 1) for step in self.steps]
        return [row for row in range(len(starts)) if row == 0 or starts[row] != starts[row - 1]]

    def named(self, event: str) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event]


def read(*lines: str, end: str = "\n", size: int = 1 << 20) -> ReadLog:
    """`size`: bytes by which the log grows between two looks at it."""
    text = ("\n".join(lines) + end).encode()
    return ReadLog(text[i : i + size] for i in range(0, len(text), size))


def step(number: int, seconds: float = 2.0, loss: object = 3.0, more: str = "") -> str:
    return (
        f"completed step: {number}, seconds: {seconds:.3f}, TFLOP/s/device: 100.000, Tokens/s/device: 512.000, "
        f"total_weights: 1024, loss: {loss}{more}"
    )


def rows(log: ReadLog) -> list[int]:
    """The steps that count."""
    return [step["step"] for step in log.counted]


USUAL = "completed step: 9, seconds: 5.667, TFLOP/s/device: 134.924, Tokens/s/device: 8672.758, total_weights: 196608, loss: 10.374"
WITH_MORE = f"{USUAL}, lm_loss: 10.301, perplexity: 785.034, moe_lb_loss: 0.073, mtp_loss: 1.250"
PREFIXES = {
    "none": "",
    "absl": ABSL,
    "python logging": "2026-11-21 02:23:05,018 INFO ",
    "kubectl --timestamps": "2026-11-21T02:23:05.018744123Z ",
    "kubectl --prefix": "[pod/toy-slice-job-0-0-x7k2p/jax-tpu-1] ",
    "kubectl --prefix --timestamps": "[pod/toy-slice-job-0-0-x7k2p/jax-tpu-1] 2026-11-21T02:23:05.018744123Z " + ABSL,
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("line", [USUAL, WITH_MORE], ids=["usual", "more fields"])
def test_a_step_is_read_behind_every_prefix(prefix: str, line: str) -> None:
    log = read(prefix + line)
    (logged,) = log.steps
    figures = ("step", "step_s", "tflops_per_device", "tokens_per_s_per_device", "total_weights", "loss")
    assert [logged[name] for name in figures] == [9, 5.667, 134.924, 8672.758, 196608, 10.374]
    assert log.state.damaged == 0 and log.state.not_finite is None


@pytest.mark.parametrize(
    "prefix", [p for name, p in PREFIXES.items() if "time" in name or "absl" in name or "python" in name]
)
def test_the_time_of_a_step_is_that_of_its_line(prefix: str) -> None:
    log = read(prefix + USUAL, prefix.replace("02:23:05", "02:23:09") + USUAL.replace("step: 9", "step: 10"))
    first, second = log.column("time")
    assert second - first == pytest.approx(4.0, abs=1e-3)
    assert first % 86400 == pytest.approx(2 * 3600 + 23 * 60 + 5.018, abs=0.01)
    assert log.state.last_time is not None and log.state.first_time is not None
    assert log.state.last_time - log.state.first_time == pytest.approx(4.0, abs=1e-3)


def test_a_date_inside_a_line_is_not_its_time() -> None:
    assert read("checkpoint of 2020-01-01 00:00:00: " + USUAL).column("time") == [None]


def test_a_step_without_a_time_has_that_of_the_step_before() -> None:
    stamp = "2026-11-21T02:23:05.000Z "
    assert len(set(read(stamp + step(0), step(1), step(2)).column("time"))) == 1


def test_more_figures_of_the_last_step() -> None:
    log = read(step(0), WITH_MORE + ", mtp_acceptance_rate: 12.50%, note: text")
    more = {"lm_loss": 10.301, "perplexity": 785.034, "moe_lb_loss": 0.073, "mtp_loss": 1.25}
    assert log.steps[1] == log.steps[1] | more | {"mtp_acceptance_rate": 12.5} and "note" not in log.steps[1]


def test_older_lines_and_those_of_elastic_runs() -> None:
    log = read(
        "completed step: 0, seconds: 5.120, TFLOP/s/device: 33.343, loss: 12.620",
        "completed step: 1, seconds: 1.341, TFLOP/s/device: 257.929, Tokens/s/device: 36653.244, loss: 0.000",
        "completed step: 2, seconds: 1.350, live slice count: 3, TFLOP/s/device: 256.0, Tokens/s/device: 36400.0, total_weights: 7e4, loss: 2.5",
    )
    assert log.column("step_s") == [5.12, 1.341, 1.35]
    assert log.column("tflops_per_device") == [33.343, 257.929, 256.0]
    assert log.column("tokens_per_s_per_device") == [None, 36653.244, 36400.0]
    assert log.column("total_weights") == [None, None, 70000] and log.column("loss") == [12.62, 0.0, 2.5]
    assert log.column("live slice count") == [None, None, 3.0]


def test_ramp_up_and_hidden_steps_are_marked() -> None:
    log = read(
        f"{ABSL}[Rampup Batch Size Phase], completed step: 0, seconds: 3.100, total_weights: 64, loss: 9.000",
        f"{ABSL}[Rampup Batch Size Phase], " + step(1),
        step(2),
        f"{ABSL}completed profiler activation/deactivation step: 3, total_weights: 64, loss: 8.000, lm_loss: 8.000",
    )
    assert log.column("ramp_up") == [True, True, None, None]
    assert log.column("profiler_switched") == [None, None, None, True]
    assert log.column("step_s") == [3.1, 2.0, 2.0, None] and log.column("loss")[3] == 8.0


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_names_its_first_step(word: str) -> None:
    log = read(step(0), step(1, loss=word), step(2, loss=word))
    assert log.state.not_finite == 1 and log.column("loss") == [3.0, None, None] and log.state.damaged == 0
    assert log.state.ends_not_finite and not read(step(0, loss=word), step(1)).state.ends_not_finite


def test_evaluations() -> None:
    log = read(
        step(0),
        f"{ABSL}Completed eval step: 0, seconds: 0.912, running loss=3.100, running perplexity=22.198",
        f"{ABSL}Completed eval after train step 4, loss=2.905, perplexity=18.265, total_weights=4096, avg_z_loss=0.000",
        "eval metrics after step: 9, loss=2.500, total_weights=4096",
    )
    first, second = log.named("evaluation")
    assert (first["when"], first["step"], first["loss"], first["perplexity"]) == ("during", 4, 2.905, 18.265)
    assert (second["step"], second["loss"]) == (9, 2.5) and len(log.steps) == 1


def test_what_other_lines_say() -> None:
    log = read(
        "XPK Start: Sat Nov 21 02:20:00 UTC 2026",
        f"{ABSL}System Information: Jax Version: 0.9.2.dev20260306",
        f"{ABSL}System Information: Jaxlib Version: 0.9.2",
        f"{ABSL}System Information: Jax Backend: PJRT C API",
        "TFRT TPU v6 lite",
        "libtpu version: 0.0.42",
        f"{ABSL}Num_devices: 512, shape (1, 1, 1, 256, 2, 1, 1)",
        f"{ABSL}Config param steps: 30",
        f"{ABSL}Config param run_name: a: b",
        f"{ABSL}number parameters: 671.026 billion",
        f"{ABSL}Per train step:",
        " Total TFLOPs: 8208.70 ",
        " split as 94.20% learnable weight flops and 5.80% attention flops",
        "[train] Total estimated memory size: 86.1 GB, Total output size: 5.5 GB, Total temp size: 80.5 GB, Total host temp size: 0.0 GB",
        "Memstats: After params initialized:",
        "\tUsing (GB) 10.5 / 94.75 (11.1%) on TPU_0(process=0,(0,0,0,0))",
        "\tUsing (GB) 63.9 / 94.75 (67.4%) on TPU_1(process=0,(0,0,0,1))",
        step(0),
        "XPK End: Sat Nov 21 02:40:00 UTC 2026",
        "EXIT_CODE=0",
    )
    k = log.known
    assert (k.devices, k.mesh, k.device_kind) == (512, "(1, 1, 1, 256, 2, 1, 1)", "TPU v6 lite")
    assert k.versions == {"jax": "0.9.2.dev20260306", "jaxlib": "0.9.2", "libtpu": "0.0.42"}
    assert k.settings == {"steps": "30", "run_name": "a: b"}
    assert (k.params_billion, k.memory_gib) == (671.026, 86.1)
    assert (k.memory_used_gib, k.memory_limit_gib, k.exit_code) == (63.9, 94.75, 0)
    assert log.end.last_lines[-1] == "EXIT_CODE=0"
    (start,) = log.named("environment")
    assert (start["devices"], start["device_kind"], start["num_params"]) == (512, "TPU v6 lite", 671_026_000_000)
    assert (start["max_steps"], start["versions"]) == (30, k.versions)


def test_after_a_restart_the_later_step_counts() -> None:
    log = read(*(step(n, 2.0, 5.0) for n in range(6)), *(step(n, 3.0, 4.0) for n in range(3, 8)))
    assert rows(log) == list(range(8)) and log.starts == [0, 6]
    assert [each["step_s"] for each in log.counted] == [2.0] * 3 + [3.0] * 5


def test_a_restart_that_goes_back_behind_an_earlier_one() -> None:
    log = read(*(step(n, 1.0) for n in range(6)), *(step(n, 2.0) for n in (4, 5, 6)), *(step(n, 3.0) for n in (2, 3)))
    assert rows(log) == [0, 1, 2, 3] and [each["step_s"] for each in log.counted] == [1.0, 1.0, 3.0, 3.0]


def test_a_process_that_starts_again_at_the_next_step_is_an_attempt() -> None:
    log = read(step(0), step(1), "number parameters: 1.000 billion", step(2))
    assert log.starts == [0, 2] and rows(log) == [0, 1, 2]


def test_a_repeated_line_of_another_process_is_no_restart() -> None:
    log = read(*(step(n, 2.0, 5.0 - n) for n in (0, 0, 1, 1, 2, 2)))
    assert log.starts == [0] and log.state.repeated == 3 and rows(log) == [0, 1, 2]
    other = read(step(0, loss=5.0), step(0, loss=4.0))
    assert other.starts == [0, 1] and other.state.repeated == 0


def test_of_several_pods_the_first_that_reports_a_step_counts() -> None:
    pods = [f"[pod/w-slice-job-0-{n}-abcde/jax-tpu] " for n in range(3)]
    log = read(
        *(pod + "Num_devices: 24, shape (24,)" for pod in pods),
        *(pod + step(n, 2.0 + i) for n in range(4) for i, pod in enumerate(pods)),
    )
    assert rows(log) == [0, 1, 2, 3] and set(log.column("step_s")) == {2.0} and len(log.state.other_hosts) == 2


def test_a_step_as_people_write_it_down() -> None:
    log = read(
        "Step 0: loss=12.153, 485s (编译)", "Step 2: loss=8.509,  0.076s (async pipeline)", "Step 9: loss=0.078, ~220s"
    )
    assert log.column("step") == [0, 2, 9] and log.column("step_s") == [485.0, 0.076, 220.0]
    assert log.column("loss") == [12.153, 8.509, 0.078]


@pytest.mark.parametrize("size", [7, 100, 1 << 20])
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    lines = [f"{ABSL}Num_devices: 8, shape (8,)", *(ABSL + step(n, n + 1) for n in range(5)), "EXIT_CODE=0"]
    log = read(*lines, size=size)
    assert log.column("step_s") == [1, 2, 3, 4, 5] and log.known.devices == 8 and log.known.exit_code == 0
    assert log.starts == [0]


def test_carriage_returns_end_lines_too() -> None:
    assert rows(read(step(0) + "\r", "50%|###| 1/2\r" + step(1) + "\r")) == [0, 1]


@pytest.mark.parametrize(
    ("cut", "counts"),
    [(6, False), (1, False), (0, True)],
    ids=["in the middle", "by one digit", "whole, without a newline"],
)
def test_a_last_line_that_is_cut_does_not_count(cut: int, counts: bool) -> None:
    last = step(1, loss="2.125")
    log = read(step(0, loss="3.125"), last[: len(last) - cut], end="")
    assert rows(log) == ([0, 1] if counts else [0])
    assert log.state.cut == ("" if counts else last[: len(last) - cut])


def test_a_first_line_that_is_cut_is_no_step() -> None:
    log = read("completed step: 5, seconds: 12.2, TFLOP/s/dev", end="")
    assert not log.steps and log.state.cut.endswith("TFLOP/s/dev")


def test_damaged_lines_are_counted_and_do_not_count() -> None:
    mixed = "completed step: 1, seconds: 1.2completed step: 1, seconds: 2.000, TFLOP/s"
    log = read(step(0), mixed, "completed step: 2, total_weights: 64", step(3), "grep 'completed step: ' train.log")
    assert rows(log) == [0, 3] and log.state.damaged == 2 and log.state.damaged_example == mixed


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["completed step: "],
        ["completed step: -1, seconds: 2"],
        ["completed step: 99999999999999999999, seconds: 2"],
    ],
    ids=["empty", "no number", "negative", "huge"],
)
def test_what_is_no_step(lines: Iterable[str]) -> None:
    assert len(read(*lines).steps) == 0


def test_bytes_that_are_no_text_do_no_harm() -> None:
    noise = bytes(range(256)) * 5000
    log = ReadLog([noise, noise])
    assert not log.steps


def test_a_line_without_an_end_takes_no_memory() -> None:
    log = ReadLog(b"x" * (1 << 22) for _ in range(10))
    assert not log.steps and log.state.position == (40 << 20) - (1 << 16)


def test_causes_are_those_of_the_last_attempt() -> None:
    memory = "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 30.31G. Only 29.35G free."
    log = read(step(0), memory, step(0, 3.0, 2.5), step(1), "StopIteration")
    assert log.endings == ["OUT_OF_DATA"]


@pytest.mark.parametrize("prefix", ["", "[pod/w-0-0-abc/jax-tpu] ", "2026-11-21T02:23:05.018744123Z "])
def test_the_end_of_the_data_is_seen_behind_prefixes(prefix: str) -> None:
    log = read(prefix + step(0), prefix + "StopIteration")
    assert log.endings == ["OUT_OF_DATA"]


def test_maxtext_says_itself_that_the_data_ended() -> None:
    log = read(step(0), "Training stopped: `load_next_batch()` failed with <class 'StopIteration'> exception: ().")
    assert log.endings == ["OUT_OF_DATA"]
    assert log.known.stopped and log.known.stopped.startswith("Training stopped")


def test_the_profiler_reports_between_two_steps() -> None:
    log = read(
        step(0),
        step(1),
        "I0811 7 profiler_session.cc:136] Profiler session started.",
        step(2),
        "Profiler session tear down.",
        step(3),
    )
    assert [event["step"] for event in log.named("profiler")] == [1, 2]


@pytest.mark.parametrize(
    "line", [USUAL, f"{USUAL}, lm_loss: 1.0", "Step 9: loss=5.272, 7.954s", "completed step: 9, seconds: 5.667"]
)
def test_a_step_of_the_full_batch_has_no_marks(line: str) -> None:
    assert not {"ramp_up", "profiler_switched"} & read(line).steps[0].keys()


@pytest.mark.parametrize("line", [USUAL, f"{USUAL}, lm_loss: 1.0", "completed step: 9, seconds: 5.667"])
def test_a_step_of_a_growing_batch_may_begin_its_line(line: str) -> None:
    assert read("[Rampup Batch Size Phase], " + line).column("ramp_up") == [True]


def test_an_evaluation_whose_loss_is_no_number_has_none() -> None:
    lines = [f"Completed eval after train step 4 loss={loss}, total_weights=10" for loss in ("2.5", "nan")]
    assert [e["loss"] for e in read(step(0), *lines).named("evaluation")] == [2.5, None]


def test_memory_in_use_may_be_below_one_gib() -> None:
    assert read(step(0), "Using (GB) 0.25 / 94.74 (0.26%) on TPU_0").known.memory_used_gib == 0.25


def test_only_so_many_settings_are_kept() -> None:
    known = read(*(f"Config param key{n}: {n}" for n in range(4100)), step(0)).known
    assert len(known.settings) == 4000 and known.settings["key3999"] == "3999"


def test_the_last_time_is_that_of_the_last_line_though_it_has_no_end() -> None:
    stamps = [f"2026-11-21T02:23:{second:02}.000Z " for second in (5, 7, 9)]
    for size in (40, 1 << 20):
        log = read(*(f"{stamp}{step(n)}" for n, stamp in enumerate(stamps)), end="", size=size)
        assert log.state.first_time is not None and log.state.last_time == log.state.first_time + 4.0


def test_the_profiler_of_the_host_that_counts_is_noticed() -> None:
    pod, other = "[pod/a/jax-tpu] ", "[pod/b/jax-tpu] "
    lines = [*(pod + step(n) for n in range(3)), pod + "Profiler session started.", other + "Profiler session started."]
    assert [event["step"] for event in read(*lines).named("profiler")] == [2]


OOM = "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 96.1G of 94.7G hbm."


@pytest.mark.parametrize("size", [97, 1 << 20])
def test_causes_of_the_last_attempt_are_found_behind_a_long_log(size: int) -> None:
    """The first attempt is longer than the end of the log that is searched for causes; pieces of the log end within lines."""
    padding = ["x" * 4000] * (3000 if size > 1000 else 0)
    first = [step(0), *padding, step(1), step(2)]
    log = read(*first, "StopIteration", "XPK Start: now", step(1), OOM, size=size)
    assert log.endings == ["OUT_OF_MEMORY"] and len(log.starts) == 2
    log = read(*first, OOM, "XPK Start: now", step(1), step(2), size=size)
    assert log.end.failures == []


@pytest.mark.parametrize("size", [7, 1 << 20])
def test_colors_of_a_terminal_are_no_part_of_a_line(size: int) -> None:
    """The whole line, or words of it, as loggers and `ls --color` write them."""
    lines = [f"\x1b[32m{ABSL}{step(n)}\x1b[0m" for n in range(2)]
    lines += [f"\x1b[38;5;208m[pod/a/b]\x1b[m {step(2)}".replace("seconds", "\x1b[1;31mseconds\x1b[0m\x1b[K")]
    log = read("\x1b[1mNum_devices: 16, shape (16,)\x1b[0m", *lines[:2], size=size)
    assert rows(log) == [0, 1] and log.column("loss")[1] == 3.0 and log.known.devices == 16
    assert not log.state.damaged and log.state.first_time is not None
    assert rows(read(lines[2], size=size)) == [2] and read(lines[2]).state.host == "pod/a/b"


def test_the_number_of_a_step_has_at_most_nine_digits() -> None:
    log = read(step(999_999_999), step(10**9), step(10**18), step(int("9" * 4000)))
    assert rows(log) == [999_999_999] and log.state.damaged == 3
