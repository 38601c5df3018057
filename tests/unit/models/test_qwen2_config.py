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
        ({"eos_token_id": "5"}, "eos_token_id='5', which is no id of a token; write the id as a number"),
        ({"hidden_act": 3}, "hidden_act=3, which is no text"),
        ({"attention_dropout": "x"}, "attention_dropout='x', which is no number"),
        ({"hidden_act": "nonsense"}, "hidden_act='nonsense', which is no activation; give .*; known: gelu, .*, tanh$"),
        ({"hidden_act": "SiLu"}, r"hidden_act='SiLu', which is no activation; .*; did you mean silu\?$"),
        ({"attention_dropout": 2.0}, r"attention_dropout=2\.0, and a dropout is at least 0 and less than 1"),
        ({"attention_dropout": -0.1}, r"attention_dropout=-0\.1, and a dropout is at least 0"),
        ({"attention_dropout": float("nan")}, "attention_dropout=nan, and a dropout is at least 0"),
        ({"sliding_window": "x"}, "sliding_window='x', which is no number"),
        ({"rope_parameters": [1]}, r"rope_parameters=\[1\], which is no object with keys"),
        ({"rope_scaling": 3}, "rope_scaling=3, which is no object with keys"),
        ({"rope_theta": "x"}, "rope_theta='x', which is no positive number"),
        ({"rope_theta": 10**400}, r"rope_theta=10+\.\.\., which is no positive number"),
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
