"""Our tokenizer against transformers on the same directory, and Qwen3's format written out."""

import hashlib
import json
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from podwright.data import arithmetic, documents
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError

TEXTS = [f"{p.question}\n{p.solution}" for p in arithmetic.generate(300, 10, 2, 20, 0)[0]]
AWKWARD = [
    "",
    " ",
    "Tom has 12 apples.\r\n\r\n  He's 3,450.75 \t",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<think>\n\n</think>\n\n#### 7<|endoftext|>",
    "<|im_end|><|im_end|> x <think>",
    "naïve cafe\u0301 日本語 🙂 ١٢٣",
    "<|im_endx|> < think>",
]
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "<think>\neasy\n</think>\n\n2"},
    {"role": "user", "content": "2+2?"},
]
OWN_TEMPLATE = """{{ bos_token }}{% for m in messages %}
  {% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}
[{{ m.role }}] {% generation %}{{ m.content | tojson }} {{ eos_token }}{% endgeneration %}
{% if loop.last %}{% break %}{% endif %}
{% endfor %}
{% if add_generation_prompt %}[assistant]{{ ' quick' if enable_thinking is false }}{% endif %}"""


@pytest.fixture(scope="module")
def ours() -> Tokenizer:
    return Tokenizer.train(TEXTS, 400)


@pytest.fixture(scope="module")
def folder(ours: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    ours.save(path)
    return path


@pytest.fixture(scope="module", params=["alone", "beside a qwen3 config", "fast"])
def theirs(request: pytest.FixtureRequest, folder: Path):
    if request.param == "fast":
        return PreTrainedTokenizerFast.from_pretrained(folder)
    if request.param == "beside a qwen3 config":
        (folder / "config.json").write_text('{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}')
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("text", AWKWARD + TEXTS[:5])
def test_ids_and_text_are_those_of_transformers(ours: Tokenizer, theirs, text: str) -> None:
    ids = ours.encode(text)
    assert ids == theirs(text)["input_ids"] == theirs.encode(text, add_special_tokens=False)
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
    assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids)


def test_special_ids_are_those_of_transformers(ours: Tokenizer, theirs) -> None:
    assert (ours.stop_ids[0], ours.pad_id, ours.vocab_size) == (theirs.eos_token_id, theirs.pad_token_id, len(theirs))
    assert ours.stop_ids == tuple(theirs.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))


@pytest.mark.parametrize("enable_thinking", [True, False])
@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("num_turns", [1, 2, 3, 4])
def test_chats_are_those_of_transformers(
    ours, theirs, num_turns: int, add_generation_prompt: bool, enable_thinking: bool
) -> None:
    options = {"add_generation_prompt": add_generation_prompt, "enable_thinking": enable_thinking}
    text = ours.render(TURNS[:num_turns], **options)
    assert text == theirs.apply_chat_template(TURNS[:num_turns], tokenize=False, **options)
    assert ours.encode(text) == theirs.apply_chat_template(TURNS[:num_turns], return_dict=False, **options)


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_any_text_comes_back(ours: Tokenizer, text: str) -> None:
    assert ours.decode(ours.encode(text), skip_special_tokens=False) == unicodedata.normalize("NFC", text)


def test_qwen3_format_written_out(ours: Tokenizer) -> None:
    asked = "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    assert ours.chat("1+1?", "", True) == asked
    assert ours.chat("1+1?", "", False) == asked + "<think>\n\n</think>\n\n"
    assert ours.chat("1+1?", "Be brief.", True) == asked.replace("1+1?", "1+1? Be brief.")
    assert ours.render(TURNS, add_generation_prompt=True, enable_thinking=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_thoughts_survive_decoding_and_control_tokens_do_not(ours: Tokenizer) -> None:
    ids = ours.encode("<think>\nx\n</think>\n\n#### 7<|im_end|><|endoftext|>")
    assert ours.decode(ids) == "<think>\nx\n</think>\n\n#### 7"
    assert ids.count(ours.stop_ids[0]) == 1 and ids[-1] == ours.pad_id


def test_digits_come_apart(ours: Tokenizer) -> None:
    assert len(ours.encode("1234567")) == 7


def test_a_prompt_has_few_tokens(ours: Tokenizer) -> None:
    assert [ours.decode([i]) for i in ours.encode("user\nassistant\n")] == ["user", "\n", "assistant", "\n"]


def test_the_vocabulary_stays_within_its_size(ours: Tokenizer) -> None:
    assert ours.vocab_size <= 400 and max(max(ours.encode(text)) for text in TEXTS) < ours.vocab_size
    assert Tokenizer.train(TEXTS, 261).vocab_size == 261
    with pytest.raises(UserError, match="use 261 or more"):
        Tokenizer.train(TEXTS, 260)


def test_the_same_texts_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    """In another process too, where hashes are seeded differently."""
    code = (
        "from pathlib import Path; from tests.unit.data.test_tokenizer import TEXTS, Tokenizer; "
        f"Tokenizer.train(TEXTS, 400).save(Path({str(tmp_path)!r}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
    names = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
    digests = [
        [hashlib.sha256((path / name).read_bytes()).hexdigest() for name in names] for path in (folder, tmp_path)
    ]
    assert digests[0] == digests[1]


def test_a_loaded_tokenizer_is_saved_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "config.json"}
    kept["generation_config.json"] = b'{"eos_token_id": [7, 3]}'
    kept["merges.txt"] = b"#version: 0.2\n"
    for name, content in (kept | {"model.safetensors": b"weights", "config.json": b"{}"}).items():
        (tmp_path / "from" / name).write_bytes(content)
    loaded = Tokenizer.load(tmp_path / "from")
    loaded.save(tmp_path / "to")
    loaded.save(tmp_path / "from")
    assert {path.name: path.read_bytes() for path in (tmp_path / "to").iterdir()} == kept
    assert loaded.stop_ids[2:] == (7, 3)


def test_what_transformers_saves_is_read(folder: Path, tmp_path: Path, ours: Tokenizer) -> None:
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert [again.encode(text) for text in TEXTS + AWKWARD] == [ours.encode(text) for text in TEXTS + AWKWARD]
    assert (again.stop_ids, again.pad_id, again.vocab_size) == (ours.stop_ids, ours.pad_id, ours.vocab_size)
    assert again.chat("q", "i", False) == ours.chat("q", "i", False)


def with_config(folder: Path, to: Path, **config) -> Tokenizer:
    (to / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (to / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | config))
    return Tokenizer.load(to)


@pytest.mark.parametrize("form", ["text", "list"])
def test_a_template_of_its_own(folder: Path, tmp_path: Path, form: str) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": OWN_TEMPLATE}]
    special = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>", "__type": "AddedToken"}}
    ours = with_config(folder, tmp_path, chat_template=OWN_TEMPLATE if form == "text" else named, **special)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for thinking in (True, False):
        options = {"add_generation_prompt": True, "enable_thinking": thinking}
        assert ours.render(TURNS, **options) == theirs.apply_chat_template(TURNS, tokenize=False, **options)
    with pytest.raises(UserError, match="no tools"):
        ours.render([{"role": "tool", "content": ""}], add_generation_prompt=True, enable_thinking=True)


def test_the_jinja_file_comes_first(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("from the file")
    assert with_config(folder, tmp_path, chat_template="from the config").chat("q", "", True) == "from the file"


def test_without_a_template_the_format_is_qwen3s(folder: Path, tmp_path: Path, ours: Tokenizer) -> None:
    plain = with_config(folder, tmp_path)
    assert plain.chat("q", "", False) == ours.chat("q", "", False) and plain.pad_id == ours.pad_id


@pytest.mark.parametrize(
    "template",
    [
        *("{% for %}", "{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}", "{{ messages[9].role.x }}"),
        *("{{ 1 / 0 }}", "{{ messages[0].content + 1 }}", "{{ strftime_now(5) }}", "{{ range(10**9) }}"),
        "{% macro deep() %}{{ deep() }}{% endmacro %}{{ deep() }}",
    ],
)
def test_templates_that_are_refused(folder: Path, tmp_path: Path, template: str) -> None:
    with pytest.raises(UserError, match="fix chat_template") as refused:
        with_config(folder, tmp_path, chat_template=template).chat("q", "", True)
    assert refused.value.what.startswith(f"{tmp_path}: the chat template")


@pytest.mark.parametrize("system", ["", "You see animals."])
def test_a_template_that_leaves_the_users_message_out_is_refused(folder: Path, tmp_path: Path, system: str) -> None:
    with_config(folder, tmp_path).require_messages(system)
    with pytest.raises(UserError, match=r"the chat template leaves the user's message out: .*; fix chat_template"):
        with_config(folder, tmp_path, chat_template="{{ messages[0]['role'] }}:").require_messages(system)


@pytest.mark.parametrize(
    "template",
    [
        "{% if add_generation_prompt %}{{ messages[-1].content }}{% endif %}",
        "{{ raise_exception('it always thinks') if enable_thinking is false }}{{ messages[-1].content }}",
    ],
)
def test_a_template_is_judged_by_the_prompts_of_a_model_that_answers(
    folder: Path, tmp_path: Path, template: str
) -> None:
    ours = with_config(folder, tmp_path, chat_template=template)
    ours.require_messages("")
    assert [ours.chat(question, "", True) for question in ("1+1?", "2+2?")] == ["1+1?", "2+2?"]


def test_a_tokenizer_that_knows_no_word_of_the_data_is_refused(tmp_path: Path) -> None:
    bare = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "end": 1, "<unk>": 2}, unk_token="<unk>"))
    bare.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    bare.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "end"}')
    loaded = Tokenizer.load(tmp_path)
    for texts in ([], [""], ["b c", "a b"]):
        loaded.require_known(texts)
    with pytest.raises(
        UserError, match=r"has no token for any word of the data: every token is <unk>; give the tokenizer"
    ):
        loaded.require_known(["b c", "", "d"])


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("content", ["{", "null"])
def test_a_damaged_file_beside_the_tokenizer_is_named(folder: Path, tmp_path: Path, name: str, content: str) -> None:
    with_config(folder, tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match="fetch the directory again") as refused:
        Tokenizer.load(tmp_path)
    assert refused.value.what.startswith(f"{tmp_path}: {name} is no JSON object")


def test_an_end_that_is_no_id_is_refused(folder: Path, tmp_path: Path) -> None:
    with_config(folder, tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": "end"}')
    with pytest.raises(
        UserError,
        match=r'eos_token_id in generation_config\.json, or in config\.json without it, is \["end"\]; write the id',
    ):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("encode", [Tokenizer.encode, lambda tokenizer, text: tokenizer.documents([text])])
def test_a_text_without_ids_is_one_line(tmp_path: Path, encode) -> None:
    bare = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "end": 1}, unk_token="missing"))
    bare.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "end"}')
    with pytest.raises(UserError, match="the tokenizer cannot encode a text of the data"):
        encode(Tokenizer.load(tmp_path), "b")


def test_directories_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="cannot be read") as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_that_cannot_stop(tmp_path: Path) -> None:
    bare = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "end": 1}, unk_token="a"))
    bare.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="no token that ends a text"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "end"}')
    assert (Tokenizer.load(tmp_path).stop_ids, Tokenizer.load(tmp_path).pad_id) == ((1,), 1)


def test_a_tokenizer_that_git_lfs_has_not_fetched_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 1\n")
    fault = (
        f"{tmp_path}/tokenizer.json is a pointer of git-lfs, and not the file itself; type git -C {tmp_path} lfs pull"
    )
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    for read in (
        lambda: Tokenizer.load(tmp_path),
        lambda: documents.load(str(tmp_path / "a.jsonl"), tokenizer=str(tmp_path)),
    ):
        with pytest.raises(UserError, match=re.escape(fault)):
            read()


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", "<system>Be brief.<user>1?"),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "Be brief.\n\n1?"),
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}",
            "Be brief.\n\n1?",
        ),
    ],
)
def test_what_the_system_says_has_a_turn_or_begins_the_users(
    folder: Path, tmp_path: Path, template: str, prompt: str
) -> None:
    ours = with_config(folder, tmp_path, chat_template=template)
    assert ours.chat("1?", "", False, "Be brief.") == prompt


def test_special_tokens_in_texts_may_be_plain_text_as_in_transformers(folder: Path, tmp_path: Path) -> None:
    loaded = with_config(folder, tmp_path, split_special_tokens=True, eos_token="<|im_end|>")
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    text = "<|im_start|>user\n2+3?<|im_end|><think>"
    ids = theirs(text, add_special_tokens=False)["input_ids"]
    assert loaded.encode(text) == ids and loaded.stop_ids[0] not in ids
    (document,) = loaded.documents([text])
    assert document[:-1] == ids and loaded.encode(text) == ids
