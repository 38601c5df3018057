"""Files in the layouts of other programs, for pretraining: what is typed makes a file that the plan and training take."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from podwright.data import faults, line_files
from podwright.errors import UserError
from podwright.plan.checks import examples, streams
from podwright.recipe import conversions, text_lines
from podwright.recipe.load import load
from tests import verbs

NUMBER = 40
LAYOUTS = {
    "chat": lambda n: {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"{n}+1? \u00fc"},
            {"role": "assistant", "content": f"It is\n#### {n + 1}"},
        ]
    },
    "ShareGPT": lambda n: {
        "conversations": [{"from": "human", "value": f"{n}+1?"}, {"from": "gpt", "value": f"#### {n + 1}"}]
    },
    "Alpaca": lambda n: {"instruction": "Add.", "input": f"{n}+1" if n % 2 else "", "output": f"{n}\n#### {n + 1}"},
    "completion": lambda n: {"prompt": f"{n}+1?", "completion": f"#### {n + 1}"},
    "response": lambda n: {"question": f"{n}+1?", "response": f"#### {n + 1}"},
}


def typed(message: str, python: str = "python3 -c") -> str:
    """The command of a message, and the file that it writes."""
    command = python + message.partition(python)[2].partition(", and use that file")[0]
    subprocess.run(["sh", "-c", command], check=True)
    return shlex.split(command)[-1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lines_of_other_programs_become_texts_by_what_is_typed(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "my data.jsonl"
    path.write_text("".join(json.dumps(LAYOUTS[layout](n)) + "\n" for n in range(NUMBER)))
    with pytest.raises(UserError) as refused:
        streams.take(str(path), "bytes")
    new = typed(refused.value.fix)
    assert faults.check(new)["valid"] == NUMBER and streams.take(new, "bytes").documents == NUMBER


def test_inputs_of_alpaca_are_kept_where_the_first_line_has_none(tmp_path: Path) -> None:
    for first in ({"instruction": "Add.", "input": "", "output": "0"}, {"instruction": "Add.", "output": "0"}):
        path = tmp_path / "a.jsonl"
        rows = [first, *({"instruction": "Add.", "input": f"{n}+1", "output": str(n + 1)} for n in range(1, NUMBER))]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (error,) = streams.check(str(path), "bytes", vocab_size=259, sequence_length=32, batch_size=1, max_steps=1)
        converted = [json.loads(line)["text"] for line in Path(typed(error.fix)).read_text().splitlines()]
        assert converted == ["Add.\n\n0", *(f"Add.\n\n{n}+1\n\n{n + 1}" for n in range(1, NUMBER))]


def test_texts_are_kept_in_a_file_that_has_lines_of_another_layout_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"text": f"text {n}"} for n in range(50)] + [{"content": f"content {n}"} for n in range(50)]
    rows += [LAYOUTS["chat"](n) for n in range(50)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    checked = {"vocab_size": 259, "sequence_length": 32, "batch_size": 1, "max_steps": 1}
    (error,) = streams.check(str(path), "bytes", **checked)
    once = typed(error.fix)
    (error,) = streams.check(once, "bytes", **checked)
    assert ":101 has no 'text'" in error.message
    twice = typed(error.fix)
    assert [f.level for f in streams.check(twice, "bytes", **checked)] == ["info"]
    texts = [json.loads(line)["text"] for line in Path(twice).read_text().splitlines()]
    assert texts[:100] == [f"text {n}" for n in range(50)] + [f"content {n}" for n in range(50)]
    assert texts[100].startswith("Be brief.\n\n0+1?")


@pytest.mark.parametrize(
    ("content", "says", "program"),
    [
        ("text,label\n" + "".join(f'"{n}, 1?",{n}\n' for n in range(NUMBER)), "CSV", "python3"),
        ("".join(json.dumps({"text": f"{n}?"}) + "\r" for n in range(NUMBER)), "end with CR alone", "tr "),
    ],
    ids=["CSV", "CR"],
)
def test_tables_and_old_line_ends_are_named_and_converted(
    tmp_path: Path, content: str, says: str, program: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content.encode())
    (fault,) = faults.check(str(path))["faults"]
    assert says in fault["message"]
    assert faults.check(typed(fault["message"], program))["valid"] == NUMBER


def test_text_with_commas_is_no_table() -> None:
    for line in (
        b'"hello, you"',
        b"Hello, world",
        b"[1,2]",
        b'{"a": 1, "b": 2}',
        b"1,2",
        b"a,a",
        b"",
        b"it is so, or not",
    ):
        assert text_lines.other_format("a.jsonl", line) is None, line
    assert text_lines.other_format("a.txt", b"question,answer") is None


def test_rows_without_a_text_have_no_conversion() -> None:
    for row in ({"messages": []}, {"messages": [{"role": "user", "content": ["x"]}]}, [], "x", {"a": "b"}, {}):
        assert conversions.to_text("a.jsonl", row) == ""


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        (
            "https://x.org/d/train.jsonl",
            "type curl -fL https://x.org/d/train.jsonl -o train.jsonl, and then data.source=train.jsonl",
        ),
        ("s3://b/train.jsonl", "type aws s3 cp s3://b/train.jsonl train.jsonl, and then data.source=train.jsonl"),
        ("gs://b/folder", "type gcloud storage cp -r gs://b/folder ., and then data.source=folder"),
        ("https://huggingface.co/datasets/openai/gsm8k", "type data.source=openai/gsm8k"),
        ("file:///d/a.jsonl", "type data.source=/d/a.jsonl"),
        ("ftp://x/y", "copy it to this machine, and give its path"),
    ],
)
def test_a_url_of_data_that_is_read_from_this_machine_says_how_to_copy_it(
    tmp_path: Path, source: str, fix: str
) -> None:
    (error,) = examples.check(load("qwen3-tiny-arithmetic-grpo", [f"data.source={source}"]), tmp_path)
    assert error.level == "error" and error.message.startswith(f"data.source={source} is a URL") and error.fix == fix
    with pytest.raises(UserError, match=" is a URL") as refused:
        line_files.files(source, Path(source))
    assert refused.value.fix.startswith(fix)


def test_parquet_files_and_directories_of_questions_are_checked(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"question": f"{n}?", "answer": f"#### {n}" if n != 3 else "none"} for n in range(9)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    record = faults.check(str(tmp_path / "a.parquet"))
    assert (record["lines"], record["valid"], record["num_faults"]) == (9, 8, 1)
    assert "a.parquet row 4: the answer has no '#### n'" in record["faults"][0]["message"]
    (tmp_path / "d").mkdir()
    for name in ("train", "test"):
        (tmp_path / "d" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows if row != rows[3]))
    record = faults.check(str(tmp_path / "d"))
    assert (record["lines"], record["valid"], record["num_faults"]) == (16, 16, 0)
    assert list(record["files"]) == [str(tmp_path / "d" / f"{name}.jsonl") for name in ("train", "test")]
    assert "8 lines of the 8 of test.jsonl are in train.jsonl too" in record["warnings"][0]
    (tmp_path / "d" / "test.jsonl").write_text(json.dumps(rows[3]) + "\n")
    done = verbs.call("data", "check", str(tmp_path / "d"))
    assert done.code == 1 and done.stdout.splitlines()[-1].endswith("d: 1 fault in 9 lines, 8 valid")
