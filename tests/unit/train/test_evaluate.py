"""Every question is graded once, by what was answered to it; the answers are written here."""

import json

import numpy as np
import pytest

from podwright.rundir import RunDir, read_jsonl
from podwright.train.emit import Emitter
from podwright.train.grpo import evaluate
from podwright.train.grpo.evaluate import Evaluator
from tests.unit.train import scripted

# by question number: right both ways; right to the flexible reading alone; wrong; cut off; right
ANSWERS = {0: "#### 1", 1: "it is 2", 2: "#### 9", 3: "I think it is...", 4: "#### 5"}


def evaluator(num, rows, text=None, mesh=(1, 1, 1), **more):
    s = scripted.setup("grpo.num_generations=2", mesh=mesh)
    asked = scripted.encoded(s, num)
    text = text or (lambda question, g, number: ANSWERS[int(question.split("+")[0])])
    return Evaluator(s, scripted.sampler(s, asked, 1, text, rows), asked, scripted.TOKENIZER, **more)


@pytest.mark.parametrize(("rows", "mesh"), [(2, (1, 1, 1)), (4, (1, 2, 2)), (5, (1, 1, 1)), (8, (1, 8, 1))], ids=str)
def test_each_question_counts_once_however_many_rows_a_batch_has(rows, mesh):
    """The last batch is filled up with a question that is right: it must not be counted again."""
    figures, strict, samples = evaluator(5, rows, mesh=mesh).run(None)
    assert strict == [True, False, False, False, True] and all(type(x) is bool for x in strict)
    assert figures["num"] == 5
    assert (figures["strict"]["correct"], figures["flexible"]["correct"]) == (2, 3)
    assert (figures["strict"]["accuracy"], figures["flexible"]["accuracy"]) == (2 / 5, 3 / 5)
    assert figures["truncated"] == 1 / 5
    tokens = [len(ANSWERS[n].removesuffix("...")) + (n != 3) for n in range(5)]  # the stop token counts
    assert figures["mean_tokens"] == pytest.approx(np.mean(tokens))
    assert figures["seconds"] > 0
    assert samples == [
        {
            "question": f"{n}+1?",
            "answer": str(n + 1),
            "completion": ANSWERS[n].removesuffix("..."),
            "extracted": extracted,
            "correct": n in (0, 4),
        }
        for n, extracted in enumerate(["1", "2", "9", None, "5"])
    ]


@pytest.mark.parametrize("rows", [3, 12])
def test_the_first_eight_answers_are_kept(rows):
    numbers = set()
    asked = evaluator(11, rows, lambda question, g, number: numbers.add(number) or f"#### {question[0]}")
    _, strict, samples = asked.run(None)
    assert numbers == {0}, "the same noise every time"
    assert len(strict) == 11 and [s["question"] for s in samples] == [f"{n}+1?" for n in range(evaluate.NUM_SAMPLES)]
    assert evaluate.NUM_SAMPLES == 8


def test_grades_of_another_process_are_zero_until_they_are_added_up(monkeypatch):
    """Here rows 0 and 2 are this process's own; the other one has graded rows 1 and 3."""
    own_texts, of_others = evaluate.own_texts, np.array([[0] * 4, [1, 1, 1, 9], [0] * 4, [0, 1, 0, 9]], np.int32)
    monkeypatch.setattr(evaluate, "own_texts", lambda *x: {p: t for p, t in own_texts(*x).items() if p % 2 == 0})
    monkeypatch.setattr(evaluate, "combined", lambda own: own + of_others)
    figures, strict, _ = evaluator(4, 4).run(None)
    assert strict == [True, True, False, False] and figures["flexible"]["correct"] == 3
    assert figures["truncated"] == 1 / 4 and figures["mean_tokens"] == (7 + 9 + 7 + 9) / 4


def test_an_evaluation_that_is_stopped_on_the_way_says_nothing(tmp_path):
    asked = []
    run = RunDir(tmp_path)
    stopped = evaluator(5, 2, stopping=lambda: asked.append(1) or len(asked) == 2)
    assert not evaluate.report(stopped, None, Emitter(run, 1, True), "before", 0)
    assert len(asked) == 2, "asked before every batch"
    assert [e["event"] for e in read_jsonl(run.events)] == ["phase"]
    assert not run.samples.exists() and not run.flags("before").exists()


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_what_an_evaluation_leaves(tmp_path, when):
    run = RunDir(tmp_path)
    assert evaluate.report(evaluator(5, 2), None, Emitter(run, 1, True), when, 3)
    phase, event = read_jsonl(run.events)
    assert phase["phase"] == "evaluation"
    assert (event["event"], event["when"], event["step"], event["num"]) == ("evaluation", when, 3, 5)
    assert (event["strict"]["correct"], event["flexible"]["correct"]) == (2, 3)
    if when == "during":
        assert not run.samples.exists() and not run.flags(when).exists()
    else:
        assert json.loads(run.flags(when).read_text()) == [True, False, False, False, True]
        assert [(s["when"], s["question"]) for s in read_jsonl(run.samples)] == [(when, f"{n}+1?") for n in range(5)]


def test_another_process_than_the_first_writes_nothing(tmp_path):
    run = RunDir(tmp_path)
    assert evaluate.report(evaluator(5, 2), None, Emitter(run, 1, False), "before", 0)
    assert not any(path.exists() for path in (run.events, run.samples, run.flags("before")))
