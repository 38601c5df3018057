"""A run is shown in a terminal and in plain lines, each with what is new."""

import io
from pathlib import Path

from podwright.rundir import RunDir
from podwright.watch.figures import duration, of_step
from podwright.watch.live import LiveView
from podwright.watch.metrics import Progress
from podwright.watch.plain import PlainView
from podwright.watch.view import view
from tests.unit.watch.test_metrics import step, write

RECIPE = {"kind": "grpo", "training": {"max_steps": 100}}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def measured(folder: Path) -> RunDir:
    run = RunDir(folder / "r")
    run.path.mkdir()
    run.recipe.write_text('{"kind": "grpo", "training": {"max_steps": 100}}')
    return run


def test_plain_lines_are_few_and_say_what_is_new(tmp_path: Path) -> None:
    run, out = measured(tmp_path), io.StringIO()
    plain = PlainView("r", Progress(run, RECIPE), out)
    write(run.events, {"event": "phase", "phase": "grpo", "time": 0.0})
    write(run.metrics, *(step(n, float(n), reward=1.5, kl=None) for n in range(1, 101)))
    write(
        run.events,
        {"event": "evaluation", "when": "after", "step": 3, "strict": {"accuracy": 0.5}, "num": 8, "time": 200.0},
    )
    plain.refresh("running", 1)
    plain.refresh("running", 1)
    lines = out.getvalue().splitlines()
    assert lines[0] == "r: grpo"
    assert lines[1] == "r: grpo 1/100  reward 1.500"
    assert len([line for line in lines if "/100" in line]) == 21
    assert lines[-2:] == ["r: accuracy after: 50.0 % of 8", "r: running, attempt 1"]


def test_who_comes_late_is_told_how_far_it_is(tmp_path: Path) -> None:
    run, out = measured(tmp_path), io.StringIO()
    write(run.metrics, *(step(n, float(n)) for n in range(1, 51)))
    PlainView("r", Progress(run, RECIPE), out).refresh("running", 1)
    assert out.getvalue().splitlines() == ["r: grpo 50/100  ETA 0:00:50", "r: running, attempt 1"]


def test_the_live_view_shows_bar_figures_accuracy_and_warnings(tmp_path: Path) -> None:
    run, out = measured(tmp_path), Terminal()
    live = view(run, out)
    assert isinstance(live, LiveView)
    write(run.metrics, step(1, 0.0), step(40, 30.0, reward=2.5, kl=0.02, tokens_per_s=1234.5))
    write(
        run.events,
        {"event": "evaluation", "when": "before", "step": 0, "strict": {"accuracy": 0.125}, "num": 8, "time": 1.0},
    )
    live.say("trackers are behind")
    live.refresh("running", 1)
    live.close()
    shown = out.getvalue()
    for piece in (
        "40/100",
        "ETA 0:30:00",
        "reward 2.500",
        "KL 0.0200",
        "tokens/s 1,23",
        "accuracy before: 12.5 % of 8",
        "trackers are behind",
    ):
        assert piece in shown, piece


def test_messages_after_the_last_picture_are_shown_when_the_view_closes(tmp_path: Path) -> None:
    out = Terminal()
    live = view(measured(tmp_path), out)
    live.say("drawn")
    live.refresh("running", 1)
    shown = len(out.getvalue())
    for n in range(5):
        live.say(f"machines {n} [left] are not deleted")
    live.close()
    rest = out.getvalue()[shown:]
    assert all(f"machines {n} [left] are not deleted" in rest for n in range(5))
    assert rest.count("drawn") <= 1


def test_a_run_that_pretrains_shows_loss_and_held_out_loss(tmp_path: Path) -> None:
    run, out = measured(tmp_path), Terminal()
    run.recipe.write_text('{"kind": "pretrain", "training": {"max_steps": 100}}')
    live = view(run, out)
    assert isinstance(live, LiveView)
    figures = {"loss": 2.25, "expert_load_max": 1.5, "tokens_per_s_per_device": 4321.0, "mfu": None}
    write(run.metrics, step(1, 0.0, "pretrain"), step(40, 30.0, "pretrain", **figures))
    write(run.events, {"event": "evaluation", "when": "before", "step": 0, "loss": 5.5, "num": 64, "time": 0.5})
    write(run.events, {"event": "evaluation", "when": "during", "step": 20, "loss": 3.125, "num": 64, "time": 1.0})
    live.refresh("running", 1)
    live.close()
    shown = out.getvalue()
    for piece in (
        "40/100",
        "loss 2.2500",
        "expert load 1.50",
        "tokens/s/device 4,321",
        "held-out loss before: 5.5000",
        "held-out loss during: 3.1250",
    ):
        assert piece in shown, piece
    assert "accuracy" not in shown


def test_plain_lines_of_a_run_that_pretrains(tmp_path: Path) -> None:
    run, out = measured(tmp_path), io.StringIO()
    plain = PlainView("r", Progress(run, RECIPE | {"kind": "pretrain"}), out)
    write(run.events, {"event": "evaluation", "when": "before", "step": 0, "loss": 5.5, "num": 64, "time": 0.0})
    write(run.metrics, step(1, 1.0, "pretrain", loss=None, step_s=2.0))
    write(run.events, {"event": "evaluation", "when": "after", "step": 1, "loss": None, "num": 0, "time": 2.0})
    plain.refresh("running", 1)
    assert out.getvalue().splitlines()[:3] == [
        "r: held-out loss before: 5.5000",
        "r: pretrain 1/100  s/step 2.00",
        "r: held-out loss after: not known",
    ]


def test_without_a_terminal_the_view_is_plain(tmp_path: Path) -> None:
    assert isinstance(view(measured(tmp_path), io.StringIO()), PlainView)


def test_figures() -> None:
    assert of_step({"reward": 1.0, "kl": None}) == ["reward 1.000"]
    shown = {0.0213: "0.0213", 0.13: "0.130", 0.00456: "0.00456", 1.156: "1.16", 12.3: "12.30", 0.0: "0.00"}
    assert [of_step({"step_s": seconds}) for seconds in shown] == [[f"s/step {text}"] for text in shown.values()]
    assert duration(3661.4) == "1:01:01"
