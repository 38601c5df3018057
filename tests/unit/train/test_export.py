"""An export asks as its run did: the tokens of the run, of transformers by the printed lines, and of `podwright eval DIR`."""

import contextlib
import datetime
import io
import json
import os
import shutil
import stat

import jax
import pytest
import tokenizers
import transformers
from tokenizers import decoders, models, pre_tokenizers, trainers

from podwright.data import chat, gsm8k
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.models import convert, param, qwen3
from podwright.recipe import load, schema
from podwright.recipe.models import Qwen3Dims
from podwright.rundir import RunDir, append_jsonl, read_json, write_json
from podwright.train import checkpoint, prompt_record
from podwright.train.grpo import loop, standalone, start
from podwright.train.mesh import make_mesh
from podwright.train.run_storage import RunStorage

DIMS = Qwen3Dims(16, 32, 1, 2, 1, 8, 384, True)
RECIPES = [name for name in load.shipped() if load.load(name).kind == "grpo"]
WORDS = ["How many apples does Tom have?", 'Let\'s think step by step and output the final answer after "####".']
# No system turn, thinking on by default inside a macro, and a format of its own.
OTHER = """{{ bos_token }}{% macro start() %}{% if enable_thinking is not defined or enable_thinking %}<reason>{% else %}<answer>{% endif %}{% endmacro %}
{%- if tools is not none %}{{ raise_exception('no tools') }}{% endif %}
{%- for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}
[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}
{%- if add_generation_prompt %}[model]{{ start() }}{% endif %}"""
RULES = "Answer with a number."


def qwen3_like(folder):
    Tokenizer.train(WORDS, DIMS.vocab_size).save(folder)


def other(folder):
    """Another vocabulary, begin and end; the template stands in tokenizer_config.json, and the end of a turn in the generation config."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<turn>", "<reason>", "<answer>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(WORDS, trainer)
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    theirs.save_pretrained(folder)
    write_json(folder / "tokenizer_config.json", read_json(folder / "tokenizer_config.json") | {"chat_template": OTHER})
    ids = {"bos_token_id": 3, "eos_token_id": theirs.convert_tokens_to_ids("<turn>")}
    penalties = {"repetition_penalty": 1.3, "min_new_tokens": 3, "no_repeat_ngram_size": 2, "suppress_tokens": [5]}
    write_json(folder / "generation_config.json", ids | penalties | {"do_sample": True, "top_k": 7})


TOKENIZERS = {"qwen3": qwen3_like, "other": other}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Random weights beside each tokenizer."""
    mesh = make_mesh(schema.GrpoMesh(), jax.devices()[:1])
    weights = param.initialize(qwen3.declare(DIMS), mesh, 0)
    folders = {}
    for name, write in TOKENIZERS.items():
        folders[name] = tmp_path_factory.mktemp(name)
        convert.write(folders[name], DIMS, weights, mesh, "float32", (1,), 0)
        write(folders[name])
    return folders, weights


def rows(file, system=""):
    file.parent.mkdir(parents=True, exist_ok=True)
    before = [{"role": "system", "content": system}] if system else []
    for n in range(20):
        turns = [{"role": "user", "content": f"{n} + 1?"}, {"role": "assistant", "content": f"#### {n + 1}"}]
        append_jsonl(file, {"messages": [*before, *turns]})
    return file


def begun(folder, sources, name, recipe, *overrides, system=""):
    """A run of `recipe` that has its weights of step 0 and has answered its first test; its folder, and that test's prompts."""
    file = rows(folder / "rows.jsonl", system)
    lengths = ["rollout.max_prompt_length=200", "rollout.total_generation_steps=8", "mesh.fsdp=1", "data.num_test=4"]
    changes = [
        f"model.source={sources[0][name]}",
        "model.name=any",
        f"data.source={file}",
        "data.num_train=0",
        *lengths,
    ]
    resolved = load.load(recipe, [*changes, "warm_start=null", "model.compute_dtype=float32", *overrides])
    run = RunDir(folder / "runs" / "r")
    run.path.mkdir(parents=True)
    write_json(run.recipe, resolved.model_dump(mode="json"))
    checkpoint.save_weights(RunStorage(run), sources[1])
    train, test, _ = gsm8k.parts(resolved.data, resolved.seed)
    _, encoded = loop._prompts(resolved, DIMS.max_positions, Tokenizer.load(sources[0][name]), train, test)
    append_jsonl(run.events, {"event": "environment", "time": 1.0, "max_steps": 1, "system": system})
    append_jsonl(run.samples, {"question": test[0].question} | ({"system": system} if system else {}))
    return run, encoded


def ids(prompts):
    return [row[:length].tolist() for row, length in zip(prompts.tokens_NS, prompts.lengths_N, strict=True)]


def ids_of_eval(folder, file, monkeypatch):
    """The prompts of `podwright eval`, without an answer."""
    seen = []

    class Asked:
        def __init__(self, setup, program, prompts, tokenizer):
            seen.append((prompts, setup))

        def run(self, params):
            return {}, [], []

    with monkeypatch.context() as patched:
        patched.setattr(standalone.evaluation, "Evaluator", Asked)
        standalone.evaluate(folder, str(file), 0)
    return seen[0]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize(("recipe", "system"), [*((name, "") for name in RECIPES), ("qwen3-1.7b-gsm8k-grpo", RULES)])
def test_run_transformers_and_eval_ask_with_the_same_tokens(tmp_path, sources, monkeypatch, recipe, name, system):
    run, encoded = begun(tmp_path, sources, name, recipe, system=system)
    document = standalone.export(run.path, tmp_path / "out")
    assert len(document["python"]) == 4
    spoken = io.StringIO()
    names = {}
    with contextlib.redirect_stdout(spoken):
        exec("\n".join(document["python"]), names)
    assert names["prompt"]["input_ids"][0].tolist() == ids(encoded)[0]
    prompts, setup = ids_of_eval(tmp_path / "out", run.recipe.parent.parent.parent / "rows.jsonl", monkeypatch)
    assert all(row in ids(prompts) for row in ids(encoded)) and len(prompts) == 20
    limits = setup.recipe.rollout
    assert (limits.max_prompt_length, limits.total_generation_steps) == (200, 8)
    assert names["model"].generation_config.eos_token_id == list(setup.stop_ids)
    assert setup.stop_ids == Tokenizer.load(sources[0][name]).stop_ids
    own, _ = ids_of_eval(run.path, "", monkeypatch)
    assert ids(own) == ids(encoded)
    called = names["tokenizer"].apply_chat_template(
        [{"role": "user", "content": "1 + 1?"}], add_generation_prompt=True, tokenize=False
    )
    assert RULES not in called and "think step" not in called


def exported(tmp_path, sources, name, *overrides):
    run, _ = begun(tmp_path, sources, name, "qwen3-tiny-gsm8k-grpo", *overrides)
    standalone.export(run.path, tmp_path / "out")
    return tmp_path / "out"


def asked(folder, **variables):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    turns = [{"role": "user", "content": "1?"}]
    return tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, **variables)


def test_thinking_is_as_in_the_run_unless_the_caller_says(tmp_path, sources):
    for name, on, off in (("qwen3", "assistant\n", "<think>\n\n</think>\n\n"), ("other", "<reason>", "<answer>")):
        for trained, end in (("true", on), ("false", off), ("null", on)):
            out = exported(tmp_path / name / trained, sources, name, f"data.enable_thinking={trained}")
            assert asked(out).endswith(end)
            assert asked(out, enable_thinking=True).endswith(on) and asked(out, enable_thinking=False).endswith(off)


def test_an_export_of_an_export_has_one_first_line(tmp_path, sources):
    first = exported(tmp_path / "1", sources, "other")
    second = exported(tmp_path / "2", ({"other": first}, sources[1]), "other")
    assert (second / "chat_template.jinja").read_bytes() == (first / "chat_template.jinja").read_bytes()
    turned = exported(tmp_path / "3", ({"other": first}, sources[1]), "other", "data.enable_thinking=true")
    assert asked(turned).endswith("<reason>")
    assert (turned / "chat_template.jinja").read_text().count("set enable_thinking") == 1
    kept = exported(tmp_path / "4", ({"other": first}, sources[1]), "other", "data.enable_thinking=null")
    assert asked(kept).endswith("<answer>")


def test_a_template_without_thinking_stays_as_it_is():
    assert chat.with_thinking("{{ messages[0].content }}", False) == "{{ messages[0].content }}"


def test_transformers_stops_where_the_run_stopped(tmp_path, sources):
    """What the model's author chose besides is left out: the test of the run asks greedily, without penalties."""
    generation = transformers.GenerationConfig.from_pretrained(exported(tmp_path / "a", sources, "other"))
    stops = Tokenizer.load(sources[0]["other"]).stop_ids
    assert len(stops) == 2 and generation.eos_token_id == list(stops)
    assert (generation.do_sample, generation.max_new_tokens) == (False, 8)
    assert generation.bos_token_id == 3
    left_out = ("top_k", "repetition_penalty", "min_new_tokens", "no_repeat_ngram_size", "suppress_tokens")
    assert not set(left_out) & read_json(tmp_path / "a" / "out" / "generation_config.json").keys()
    generation = transformers.GenerationConfig.from_pretrained(exported(tmp_path / "b", sources, "qwen3"))
    assert not generation.do_sample
    assert generation.eos_token_id == list(Tokenizer.load(sources[0]["qwen3"]).stop_ids)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_the_files_have_the_modes_of_new_ones(tmp_path, sources, umask):
    before = os.umask(umask)
    try:
        out = exported(tmp_path, sources, "qwen3")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o666 & ~umask}
    assert stat.S_IMODE(out.stat().st_mode) == 0o777 & ~umask


def test_a_directory_without_a_record_is_asked_by_its_template_alone(tmp_path, sources, monkeypatch, capsys):
    file = rows(tmp_path / "rows.jsonl")
    prompts, _ = ids_of_eval(sources[0]["other"], file, monkeypatch)
    assert prompts.texts[0] == "<s>[user] 0 + 1?</s>[model]<reason>"
    said = capsys.readouterr().err.splitlines()
    assert f"{sources[0]['other']} has no podwright.json: its chat template alone asks" in said
    exported(tmp_path / "run", sources, "other")
    ids_of_eval(tmp_path / "run" / "out", file, monkeypatch)
    assert "podwright.json" not in capsys.readouterr().err


RECORD = {
    "instruction": "",
    "system": "",
    "date": "2026-01-31",
    "enable_thinking": None,
    "max_prompt_length": 8,
    "max_new_tokens": 8,
}


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"stop_ids": "1"}', json.dumps(RECORD | {"compute_dtype": "float32", "stop_ids": []})],
)
def test_a_damaged_record_is_named(tmp_path, content):
    (tmp_path / prompt_record.RECORD).write_text(content)
    with pytest.raises(UserError, match=r"podwright\.json is damaged or of another version; export the run again, or"):
        prompt_record.read(tmp_path)


def test_a_system_turn_of_every_row_is_asked_with_other_rows_too(tmp_path, sources, monkeypatch):
    run, _ = begun(tmp_path, sources, "qwen3", "qwen3-tiny-gsm8k-grpo", system=RULES)
    standalone.export(run.path, tmp_path / "out")
    plain = rows(tmp_path / "plain.jsonl")
    for folder in (run.path, tmp_path / "out"):
        prompts, _ = ids_of_eval(folder, plain, monkeypatch)
        assert prompts.texts[0].startswith(f"<|im_start|>system\n{RULES}<|im_end|>\n<|im_start|>user\n0 + 1?")


def test_a_template_that_names_the_day_gets_that_on_which_the_run_began(tmp_path, sources, monkeypatch):
    """Also on another day: the event of the run that is read here is of 1970."""
    dated = tmp_path / "dated"
    shutil.copytree(sources[0]["qwen3"], dated)
    tokenizer = Tokenizer.load(dated)
    template = "{{ strftime_now('%d %b %Y') }}\n" + tokenizer.template
    (dated / "chat_template.jinja").write_text(template)
    run, _ = begun(tmp_path, ({"dated": dated}, sources[1]), "dated", RECIPES[0])
    standalone.export(run.path, tmp_path / "out")
    for place in (run.path, tmp_path / "out"):
        prompts, _ = ids_of_eval(place, tmp_path / "rows.jsonl", monkeypatch)
        assert tokenizer.decode(ids(prompts)[0]).startswith("01 Jan 1970"), place
    assert start.date_of({}) == datetime.date.today()
