"""Figures in words: how numbers are rounded, the sentences that are true of any run, and the results of a GRPO run."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

from podwright.failures.match import match
from podwright.recipe import even_groups
from podwright.report.records import Result, number

DASH = "–"
SIGNIFICANT = 0.05
MOST_CHARACTERS = 1500


def percent(value: Any) -> str:
    share = number(value)
    return DASH if share is None else f"{100 * share:.1f} %"


def share(value: Any) -> str:
    """One decimal, or two significant digits below 1 %."""
    part = number(value)
    return f"{100 * part:.2g} %" if part is not None and 0 < abs(part) < 0.01 else percent(part)


def times(value: Any, factor: Any) -> float | None:
    """Their product where both are known."""
    a, b = number(value), number(factor)
    return None if a is None or b is None else a * b


def signed_percent(value: Any) -> str:
    """A relative error with its sign."""
    share = number(value)
    if share is None:
        return DASH
    return f"{100 * share:+.1f} %".replace("-", "\u2212") if round(share, 3) else "0.0 %"


def interval(bounds: Any) -> str:
    low, high = (number(b) for b in bounds or (None, None))
    return "" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f} %"


def points(value: Any) -> str:
    """A difference of two percentages, with its sign."""
    share = number(value)
    if share is None:
        return DASH
    return f"{100 * share:+.1f} points".replace("-", "\u2212") if round(share, 4) else "0.0 points"


def figure(value: Any, unit: str = "") -> str:
    """Whole numbers as they are, others to three significant digits; thousands apart."""
    amount = number(value)
    if amount is None:
        return DASH
    text = f"{amount:,.0f}" if isinstance(value, int) or amount == 0 or abs(amount) >= 99.95 else f"{amount:#.3g}"
    return f"{text} {unit}".strip().replace("-", "\u2212", text.startswith("-"))


def decimals(value: Any, places: int) -> str:
    """A number with so many decimals and its thousands apart; of a small one three digits."""
    amount = number(value)
    if amount is None:
        return DASH
    return f"{amount:.3g}" if 0 < abs(amount) < 10 ** (1 - places) else f"{amount:,.{places}f}"


def duration(seconds: Any) -> str:
    amount = number(seconds)
    if amount is None:
        return DASH
    if amount < 60:
        return f"{amount:.1f} s"
    minutes, rest = divmod(round(amount), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def date(time: Any) -> str:
    seconds = number(time)
    return (
        DASH
        if seconds is None
        else datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    )


def setting(value: Any) -> str:
    """A setting as one would type it."""
    if isinstance(value, str):
        return value or '""'
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def chance(p_value: Any) -> str:
    p = number(p_value)
    if p is None:
        return DASH
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def visible(text: Any) -> str:
    """`text` with control and direction characters spelled out, and its end left out when it is very long."""
    normalized = str(text).replace("\r\n", "\n").replace("\r", "\n")
    kept = re.sub(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]",
        lambda m: f"\\u{ord(m.group()):04x}",
        normalized[:MOST_CHARACTERS],
    )
    more = len(normalized) - MOST_CHARACTERS
    return f"{kept} … ({more:,} more characters)" if more > 0 else kept


def headline(result: Result) -> str:
    """The results of a GRPO run, in a sentence or two; first that most of it taught nothing, where that is so."""
    even = result.get("even_groups")
    nothing = even_groups.sentence(even_groups.EvenGroups(**even) if even else None)
    return f"{nothing} {_results(result)}".strip()


def _results(result: Result) -> str:
    if result["accuracy_after"] is not None:
        return _after(result)
    far = how_far(result, "GRPO step")
    if not result["steps"] and not result["warm_start_steps"]:
        return f"{far} No training step was completed."
    tests = [t for t in result["evaluations"] if t.get("strict")]
    if not tests:
        return f"{far} {'Its accuracy is not in its records' if result['damaged'] else 'Its accuracy was not tested'}."
    last = tests[-1]
    when = "before GRPO" if last["when"] == "before" else f"at step {last['step']}"
    share = percent(last["strict"].get("accuracy"))
    return f"{far} In the last test, {when}, {share} of {_questions(last['num'])} were answered correctly."


def training_loss(result: Result, unit: str, more: str = "") -> str:
    """How the loss of the training steps went, and `more`; "" where it is not known."""
    last = result["loss"]["last"]
    if last is None:
        return ""
    return f"The training loss went from {figure(result['loss']['first'])} to {figure(last)} {unit}{more}."


def so_far(result: Result, step: str, unit: str) -> str:
    """How far a run is, and its training loss."""
    return f"{how_far(result, step)} {training_loss(result, unit)}".strip()


def speed(result: Result) -> str:
    """Step time, peak memory and run time, as far as they are known."""
    steady, total = result["steady_state"], result["wall_time"]["total_s"]
    parts = [
        f"{figure(steady[name])} {text}"
        for name, text in (("step_s", "s per step (median)"), ("peak_memory_gib", "GiB peak memory per device"))
        if steady.get(name) is not None
    ]
    parts += [f"{duration(total)} in total"] if total is not None else []
    return f"{', '.join(parts)}." if parts else ""


def paired(result: Result) -> str:
    """The paired test in words, or ""."""
    test = result["paired_test"]
    if not test or number(test["p_value"]) is None:
        return ""
    if (test["gained"], test["lost"]) == (0, 0):
        return "No answer changed between correct and incorrect."
    reading = "is significant" if test["p_value"] < SIGNIFICANT else "is not significant"
    counts = f"{test['gained']} answers became correct, {test['lost']} became incorrect"
    return f"{counts}: the difference {reading} at 5 % ({test['test']} test, {chance(test['p_value'])})."


def how_it_ended(result: Result) -> str:
    ending = result["ending"]
    if ending is None:
        what = "There is no record that the run has ended: it waits, it is still running, or nobody has seen its end"
        return f"{what}; podwright list asks its target."
    detail = visible(result["ending_detail"]).rstrip(".")
    return f"{_ended(ending)}: {detail}." if detail else f"{_ended(ending)}."


def parameters(result: Result) -> str:
    """The model's parameters, how many a token meets (experts), or what is trained if it is not they (LoRA)."""
    environment = result["environment"]
    total = environment["num_params"]
    trained = number(environment["num_trained_params"])
    if (active := result.get("num_active_params")) is not None:
        return f"{figure(total)}, {figure(active)} active per token"
    return (
        figure(total)
        if trained is None or trained == total
        else f"{figure(total)} frozen, {figure(int(trained))} trained in adapters"
    )


def verdict(result: Result) -> str:
    """Expected against measured, in a sentence."""
    e = result["expected"]
    if e["verdict"] == "not stated":
        steps = result["steps_planned"]
        return f"The recipe states no expected figure{f' for a run of {steps:,} steps on its data' if steps else ''}."
    promised = f"{e['metric']} {_of_metric(e, e['value'])} ± {_of_metric(e, e['tolerance'])}"
    if e["verdict"] == "not measured":
        lacking = "its damaged records lack it" if result["damaged"] else "this run has not measured it"
        return f"The recipe expects {promised}; {lacking}."
    return f"The recipe expects {promised}; measured {_of_metric(e, e['measured'])}: {e['verdict']}."


def _of_metric(expected: dict[str, Any], value: Any) -> str:
    return percent(value) if str(expected["metric"]).startswith(("accuracy", "recall")) else figure(value)


def _after(result: Result) -> str:
    questions = _questions(result["num_test_after"])
    text = f"After {result['steps']} GRPO steps the model answers {percent(result['accuracy_after'])} of {questions} correctly"
    gain = result["accuracy_gain"]
    if gain is None:
        return f"{text}; it was not tested before."
    size = f"{100 * abs(gain):.1f} points"
    if not round(gain, 4):
        return f"{text}, as many as before."
    return f"{text}, {size} {'more' if gain > 0 else 'less'} than before."


def _questions(num: Any) -> str:
    return f"{num:,} test questions" if isinstance(num, int) else "the test questions"


def how_far(result: Result, step: str) -> str:
    """How many steps of how many; `step` is what one is called."""
    planned = f" of {result['steps_planned']}" if result["steps_planned"] else ""
    where = f" after {result['steps']}{planned} {step}s" if result["steps"] else f" before the first {step}"
    if result["ending"] is None:
        return (
            f"The run is at {step} {result['steps']}{planned}."
            if result["steps"]
            else f"The run has not reached its first {step}."
        )
    return f"{_ended(result['ending'])}{where}."


def _ended(ending: str) -> str:
    failure = match(ending, "ending")
    return f"The run {failure.row.cause}" if failure and failure.row.cause else f"The run ended as {visible(ending)}"


def capitalize_first(text: str) -> str:
    return text[:1].upper() + text[1:]
