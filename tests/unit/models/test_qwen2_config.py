"""config.json of the language model of Phase 2: what transformers refuses is refused before it is asked."""

import re

import pytest

from podwright.errors import UserError
from podwright.recipe import hf_config

CONFIG = {
    **{"model_type": "qwen2", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 32, "tie_word_embeddings": True},
}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"eos_token_id": "5"}, "config.json says eos_token_id='5': "),
        ({"hidden_act": 3}, "config.json says hidden_act=3: "),
        ({"attention_dropout": "x"}, "config.json says attention_dropout='x': "),
        ({"hidden_act": "nonsense"}, "config.json says hidden_act='nonsense', which is no activation"),
        ({"hidden_act": "SiLu"}, r"hidden_act='SiLu', which is no activation; .*; did you mean silu\?$"),
        ({"attention_dropout": 2.0}, r"config.json says attention_dropout=2\.0: "),
        ({"attention_dropout": -0.1}, r"config.json says attention_dropout=-0\.1: "),
        ({"attention_dropout": float("nan")}, "config.json says attention_dropout=nan: "),
        ({"sliding_window": "x"}, "config.json says sliding_window='x': "),
        ({"rope_parameters": [1]}, r"config.json says rope_parameters=\[1\]: "),
        ({"rope_scaling": 3}, "config.json says rope_scaling=3: "),
        ({"rope_theta": "x"}, "config.json says rope_theta='x': "),
        ({"rope_theta": 10**400}, r"config.json says rope_theta=10+\.\.\.0+: "),
        ({"dtype": "float31"}, "config.json says dtype='float31', which is no dtype"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_value_of_another_type_is_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(UserError) as e:
        hf_config.qwen2(CONFIG | values)
    assert re.search(words, str(e.value)), str(e.value)


@pytest.mark.parametrize(
    "values",
    [
        {"architectures": ["Qwen2ForCausalLM", "Other"]},
        {"eos_token_id": [5, 9999]},
        {"hidden_act": "gelu"},
        {"attention_dropout": 0},
        {"sliding_window": None, "rope_scaling": None, "rope_theta": None},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}, "rope_theta": 1_000_000},
    ],
    ids=str,
)
def test_what_transformers_implements_is_left_to_it(values: dict[str, object]) -> None:
    assert hf_config.qwen2(CONFIG | values).hidden_size == 8


def test_activations_are_those_of_transformers_without_weights() -> None:
    activations = pytest.importorskip("transformers.activations").ACT2FN
    assert activations.keys() - {"prelu", "xielu"} == hf_config.ACTIVATIONS
