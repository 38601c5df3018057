"""Where examples come from and what is said when they cannot be had."""

import json
import sys
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from podwright.data import gsm8k, hub
from podwright.data.layouts import Example
from podwright.errors import UserError
from podwright.recipe.answer_numbers import gold
from podwright.recipe.schema import GrpoData

GSM8K = Path(__file__).parents[4] / "shared" / "data" / "gsm8k"


def line(n: int, question: str | None = None) -> str:
    return json.dumps({"question": question or f"What is {n}+1?", "answer": f"{n}+1={n + 1}\n#### {n + 1:,}"})


def load(source: Path | str, **more: int) -> tuple[list[Example], list[Example]]:
    return gsm8k.parts(GrpoData(source=str(source), **more), seed=0)[:2]


def refused(source: Path | str, *says: str, **more: int) -> UserError:
    with pytest.raises(UserError) as caught:
        load(source, **more)
    message = str(caught.value)
    assert "\n" not in message and caught.value.fix
    assert all(part in message for part in says), message
    return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.jsonl").write_text("".join(line(n) + "\n" for n in range(20)))
    (tmp_path / "test.jsonl").write_text("".join(line(n) + "\n" for n in range(1000, 1005)))
    return tmp_path


def test_the_real_files() -> None:
    if not GSM8K.is_dir():
        pytest.skip(f"the GSM8K files are not at {GSM8K}")
    train, test = load(GSM8K)
    assert (len(train), len(test)) == (7473, 1319)
    assert test[0].answer == "18" and test[0].solution.endswith("#### 18") and test[0].question.startswith("Janet")


def test_a_directory(folder: Path) -> None:
    train, test = load(folder)
    assert train[3] == Example("What is 3+1?", "4", "3+1=4\n#### 4") and len(train) == 20
    assert [e.answer for e in test] == ["1001", "1002", "1003", "1004", "1005"]


def test_the_first_so_many(folder: Path) -> None:
    train, test = load(folder, num_train=7, num_test=2)
    whole = load(folder)
    assert (train, test) == (whole[0][:7], whole[1][:2])


def test_parquet_as_the_hub_lays_it_out(tmp_path: Path) -> None:
    (tmp_path / "main").mkdir()
    for name, numbers in (
        ("train-00000-of-00002", range(3)),
        ("train-00001-of-00002", range(3, 5)),
        ("test-00000-of-00001", range(9, 11)),
    ):
        rows = [json.loads(line(n)) for n in numbers]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "main" / f"{name}.parquet")
    train, test = load(tmp_path)
    assert [e.answer for e in train] == ["1", "2", "3", "4", "5"] and [e.answer for e in test] == ["10", "11"]
    (tmp_path / "main" / "test-00000-of-00001.parquet").write_text("no parquet")
    refused(tmp_path, "test-00000-of-00001.parquet cannot be read as parquet")


def test_a_single_file_holds_a_tenth_out(folder: Path) -> None:
    file = folder / "train.jsonl"
    train, test = load(file)
    assert (len(train), len(test)) == (18, 2) and not {e.question for e in train} & {e.question for e in test}
    assert load(file) == (train, test)
    assert any(gsm8k.parts(GrpoData(source=str(file)), seed)[1] != test for seed in range(1, 5))
    assert len(load(file, num_test=5)[1]) == 5


def test_a_question_that_stands_twice_is_never_in_both_parts(tmp_path: Path) -> None:
    file = tmp_path / "twice.jsonl"
    file.write_text("\n".join(line(n % 10) for n in range(20)))
    train, test = load(file, num_test=4)
    assert not {e.question for e in train} & {e.question for e in test}
    assert len({e.question for e in train}) == 6


def test_a_file_too_small_to_share(tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    file.write_text(line(1) + "\n" + line(2))
    refused(file, "2 different questions", "type data.num_test=1", num_test=2)
    assert [len(part) for part in load(file)] == [1, 1]
    file.write_text(line(1))
    refused(file, "give a file with at least 2 questions")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n \n", "\r\n\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_files_as_editors_leave_them(folder: Path, end: str, mark: bytes) -> None:
    odd = line(7, "A question\u2028with a line separator, 数 and \\n?")
    raw = json.dumps(json.loads(odd), ensure_ascii=False)
    (folder / "train.jsonl").write_bytes(mark + end.join([line(1), raw, line(2)]).encode())
    train, _ = load(folder)
    assert [e.answer for e in train] == ["2", "8", "3"] and "\u2028" in train[1].question


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ('{"question": "x", ', "train.jsonl:3 is not JSON"),
        ("[1, 2]", "train.jsonl:3 is a list, not an object"),
        ('{"answer": "#### 1"}', 'train.jsonl:3 is of no layout that GRPO reads; its columns are "answer"'),
        ('{"question": "x", "solution": "#### 1"}', "train.jsonl:3 is of no layout"),
        (
            '{"question": null, "answer": "#### 1"}',
            "train.jsonl:3: question is null, not text",
        ),
        ('{"question": " ", "answer": "#### 1"}', "train.jsonl:3: question is empty"),
        ('{"question": "x", "answer": "it is 7"}', "train.jsonl:3: the answer has no '#### n'"),
        (
            '{"question": "x", "answer": "#### seven"}',
            "train.jsonl:3: the answer has no '#### n' and is no number: ' seven'",
        ),
        ('{"question": "x", "answer": "9\\n#### 1e999\\n3"}', "the answer has no '#### n' and is no number: ' 1e999'"),
        (
            '{"question": "x", "answer": "#### 1.2.3"}',
            "train.jsonl:3: of the answer '1.2.3' only 1.2 would be read; write one number",
        ),
        ('{"question": "x", "answer": "#### 3 sqrt(2)"}', "of the answer '3 sqrt(2)' only 3 would be read"),
        ("\x00", "train.jsonl:3 is not JSON"),
        ("[" * 100_000, "train.jsonl:3 is not JSON"),
        ('{"question": ' + "1" * 5000, "train.jsonl:3 is not JSON"),
        ('{"question": "\\ud800", "answer": "#### 1"}', "train.jsonl:3: question holds half a character"),
    ],
)
def test_bad_lines_are_named(folder: Path, bad: str, says: str) -> None:
    (folder / "train.jsonl").write_text(line(1) + "\n\n" + bad + "\n" + line(2) + "\n")
    refused(folder, says)


def test_a_line_that_is_not_utf8(folder: Path) -> None:
    (folder / "train.jsonl").write_bytes(line(1).encode() + b'\n{"question": "caf\xe9"}\n')
    refused(folder, "train.jsonl:2 is not UTF-8")


def test_what_is_missing(folder: Path) -> None:
    refused(folder / "nothing.jsonl", "nothing.jsonl is not there", "check the path")
    refused("./nothing", "data.source=./nothing is not there", "check the path")
    refused("data/gsm8k", "data.source=data/gsm8k is not there", "on the Hugging Face hub an id is OWNER/NAME")
    refused("/dev/zero", "data.source=/dev/zero is a device, not a file", "give a file or a directory")
    (folder / "test.jsonl").unlink()
    refused(folder, "has no file of its test part", f"data.source={folder / 'train.jsonl'}")
    (folder / "train.jsonl").unlink()
    refused(folder, "has no file of its train part", "give a directory with train.jsonl and test.jsonl")
    (folder / "notes.md").write_text("x")
    refused(folder, "has no file of its train part; give a directory with train.jsonl and test.jsonl")


def test_a_column_that_is_not_used_may_hold_what_python_has_no_value_for(tmp_path: Path) -> None:
    late = pyarrow.array([2**62, 1], pyarrow.timestamp("us"))
    good = {"question": ["a", "b"], "answer": ["#### 1", "#### 2"]}
    for name, columns in (("train", good | {"made": late}), ("test", good)):
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / f"{name}.parquet")
    assert [len(part) for part in load(str(tmp_path))] == [2, 2]
    assert [len(part.examples) for part in gsm8k.sampled(GrpoData(source=str(tmp_path)), 0)[:2]] == [2, 2]
    pyarrow.parquet.write_table(pyarrow.table(good | {"answer": late}), tmp_path / "test.parquet")
    refused(tmp_path, "test.parquet cannot be read as parquet")
    pyarrow.parquet.write_table(pyarrow.table({"q": ["x"], "made": late[:1]}), tmp_path / "test.parquet")
    refused(tmp_path, """test.parquet row 1 is of no layout that GRPO reads; its columns are "q", "made";""")


@pytest.mark.parametrize("empty", ["train", "test"])
def test_empty_sets(folder: Path, empty: str) -> None:
    (folder / f"{empty}.jsonl").write_text("\n\n")
    refused(folder, f"has no {empty} examples")


def test_arithmetic_needs_sizes() -> None:
    train, test = load("arithmetic", num_train=20, num_test=5)
    assert (len(train), len(test)) == (20, 5) and all(gold(e.solution).number == e.answer for e in train + test)
    refused("arithmetic", "data.num_train=0", "type data.num_train=N", num_test=5)
    refused("arithmetic", "data.num_test=0", num_train=5)


def fake_hub(monkeypatch: pytest.MonkeyPatch, answer) -> list[tuple]:
    """A hub that has `answer`: parts by name, each a list of rows or a data set."""
    calls: list[tuple] = []
    if isinstance(answer, dict):
        made = {k: datasets.Dataset.from_list(v) if isinstance(v, list) else v for k, v in answer.items()}
        answer = datasets.DatasetDict(made)

    def load_dataset(*arguments, streaming=False):
        calls.append(arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


def test_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [json.loads(line(n)) for n in range(4)]
    calls = fake_hub(monkeypatch, {"train": rows[:3], "test": rows[3:]})
    assert [len(part) for part in load("openai/gsm8k")] == [3, 1]
    load("someone/other")
    assert calls == [("openai/gsm8k", "main"), ("someone/other", None)]


def test_hub_sets_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    good = json.loads(line(1))
    fake_hub(monkeypatch, {"train": [good], "validation": [good]})
    assert [len(part) for part in load("a/b")] == [1, 1]
    fake_hub(monkeypatch, {"train": [good]})
    refused("a/b", "a/b has the parts train", "give a set with train and test")
    fake_hub(monkeypatch, {"train": [{"text": "x"}], "test": [good]})
    refused("a/b", "a/b train row 1 is of no layout that GRPO reads; its columns are", '"text"')


@pytest.mark.parametrize("streaming", [False, True])
def test_other_columns_of_a_set_are_not_decoded(monkeypatch: pytest.MonkeyPatch, streaming: bool) -> None:
    rows = [json.loads(line(n)) | {"picture": b"none at all"} for n in range(3)]
    features = datasets.Features(
        {"question": datasets.Value("string"), "answer": datasets.Value("string"), "picture": datasets.Image()}
    )
    part = datasets.Dataset.from_list(rows).cast(features)
    with pytest.raises(Exception, match="identify image"):
        list(part)
    part = part.to_iterable_dataset() if streaming else part
    fake_hub(monkeypatch, {"train": part, "test": part})
    assert [len(examples) for examples in load("a/b")] == [3, 3]
    for lazy in hub.load("a/b", {"question", "answer"}, streaming=True):
        assert len(list(lazy)) == 3


def test_a_part_that_fails_while_it_is_read_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        column_names = None

        def __iter__(self):
            yield json.loads(line(1))
            raise ConnectionError("reset\nby peer")

    monkeypatch.setattr(datasets, "load_dataset", lambda *_, streaming: {"train": Broken(), "test": Broken()})
    refused("a/b", "a/b train cannot be read (ConnectionError: reset)", "type data.source=DIRECTORY")


def test_a_hub_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_hub(monkeypatch, ConnectionError("no route\nto host"))
    refused(
        "openai/gsm8k",
        "the Hugging Face hub failed (ConnectionError: no route)",
        "type data.source=DIRECTORY",
    )
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused("openai/gsm8k", "needs the package datasets", "pip install -e '.[jax]' in podwright's clone")
