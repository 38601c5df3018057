"""The comparison of a card's attention kernels with the plain form: what it refuses, says and remembers."""

import json
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.experimental.pallas
import jax.numpy as jnp
import numpy as np
import pytest

from podwright.attention_kernels import HeadDims, Kernel, Layout, Versions
from podwright.kernels import mosaic
from podwright.models import attention
from podwright.train import attention_check

HEADS = HeadDims(16, 16)
CARD = SimpleNamespace(devices=np.array([SimpleNamespace(platform="gpu", compute_capability="9.0")], object))


def plain_tokens(mesh, q, cache, lengths, t):
    prompt_k, prompt_v, k, v = cache
    masks = jnp.arange(prompt_k.shape[2]) < lengths[:, None], (jnp.arange(k.shape[3]) <= t)[None]
    own = jnp.swapaxes(k, 3, 4), v
    return attention.grouped(q[:, :, None], (jnp.swapaxes(prompt_k, 2, 3), prompt_v), own, *masks)[:, :, 0]


@pytest.fixture
def kernels(monkeypatch):
    """A Hopper with all libraries, and what each layout's function gives by its kernels."""
    monkeypatch.setattr(attention, "REFUSED", set())
    for module in (attention, attention_check):
        monkeypatch.setattr(module, "versions", lambda: Versions((0, 11, 2), (9, 10), (0, 0, 17)))
    monkeypatch.setattr(mosaic, "load", lambda: None)
    plain = attention.plain_packed_groups
    forms = {
        "of_groups": lambda mesh, q, k, v, lengths, s, g: attention.plain_groups(q, k, v, lengths, s=s, g=g),
        "packed_groups": lambda mesh, q, k, v, ids: plain(q, k, v, *(() if ids is None else (ids,))),
        "of_tokens": plain_tokens,
    }

    def replace(**wrong):
        for name, form in (forms | wrong).items():
            monkeypatch.setattr(attention, name, form)

    replace()
    return replace


@pytest.mark.parametrize("layout", Layout)
def test_a_kernel_that_gives_what_the_plain_form_gives_is_used(kernels, tmp_path, layout):
    assert attention_check.refused(CARD, HEADS, [layout], tmp_path) == []
    assert not attention.REFUSED


def no_documents(mesh, q, k, v, ids):
    return attention.plain_packed_groups(q, k, v)


def other_heads(mesh, q, k, v, ids):
    """Query heads of each key-value head mixed up, as by offsets with grouped heads before jax 0.11.2."""
    b, n, heads, r, d = q.shape
    mixed = q.reshape(b, n, r, heads, d).swapaxes(2, 3)
    out = attention.plain_packed_groups(mixed, k, v, *(() if ids is None else (ids,)))
    return out.swapaxes(2, 3).reshape(q.shape)


def absent(mesh, q, k, v, ids):
    raise NotImplementedError("no such kernel\nat all")


@pytest.mark.parametrize(
    ("form", "says"),
    [(no_documents, "differs by"), (other_heads, "differs by"), (absent, "does not run (NotImplementedError: no such")],
)
def test_one_that_does_not_is_refused_and_remembered(kernels, tmp_path, form, says):
    kernels(packed_groups=form)
    first, *others = attention_check.refused(CARD, HEADS, [Layout.PACKED, Layout.GROUPS], tmp_path)
    assert first.startswith("attention by cudnn-offsets: mosaic for packed " + says)
    assert [other.partition(f" {says}")[0] for other in others] == [
        "attention by cudnn-mask: cudnn-offsets for packed",
        "attention in plain JAX, which is slower: cudnn-mask for packed",
    ]
    kinds = (Kernel.MOSAIC, Kernel.CUDNN_OFFSETS, Kernel.CUDNN_MASK)
    assert {(kernel, Layout.PACKED) for kernel in kinds} == attention.REFUSED
    assert attention.kernel_for(CARD, HEADS, Layout.PACKED) is Kernel.PLAIN
    assert attention.kernel_for(CARD, HEADS, Layout.GROUPS) is Kernel.CUDNN
    answers = json.loads((tmp_path / "attention.json").read_text())
    differ = [] if form is absent else [True, True, True]
    assert [bool(fault) for fault in answers.values()] == [*differ, False]
    if form is absent:  # for want of memory or a package, perhaps
        kernels()
        attention.REFUSED.clear()
        assert attention_check.refused(CARD, HEADS, [Layout.PACKED], tmp_path) == []


def other_prompts(mesh, q, cache, lengths, t):
    return plain_tokens(mesh, q, cache, lengths[::-1], t)


def test_a_kernel_that_decodes_wrongly_gives_way_to_the_plain_form(kernels, tmp_path):
    assert attention.decodes_by_kernel(CARD, HEADS, 2)
    kernels(of_tokens=other_prompts)
    (message,) = attention_check.refused(CARD, HEADS, [Layout.DECODE], tmp_path)
    assert message.startswith("attention in plain JAX, which is slower: triton for decode differs by")
    assert not attention.decodes_by_kernel(CARD, HEADS, 2)


def test_without_the_triton_backend_of_pallas_the_plain_form_decodes(tmp_path, monkeypatch):
    """JAX says that it will be removed."""
    monkeypatch.setattr(attention, "REFUSED", set())
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", None)
    monkeypatch.delattr(jax.experimental.pallas, "triton", raising=False)
    (message,) = attention_check.refused(CARD, HEADS, [Layout.DECODE], tmp_path)
    assert message.startswith(
        "attention in plain JAX, which is slower: triton for decode does not run (ModuleNotFoundError"
    )
    assert not attention.decodes_by_kernel(CARD, HEADS, 2)
    without = "import sys; sys.modules['jax.experimental.pallas.triton'] = None; import podwright.train.grpo.rollout"
    subprocess.run([sys.executable, "-c", without], check=True)


def test_one_whose_next_best_is_right_gives_way_to_that_and_is_remembered(kernels, tmp_path):
    def by_kernel(mesh, q, k, v, ids):
        if attention.kernel_for(CARD, HEADS, Layout.PACKED) is Kernel.MOSAIC:
            return no_documents(mesh, q, k, v, ids)
        return attention.plain_packed_groups(q, k, v, *(() if ids is None else (ids,)))

    kernels(packed_groups=by_kernel)
    (message,) = attention_check.refused(CARD, HEADS, [Layout.PACKED], tmp_path)
    assert message.startswith("attention by cudnn-offsets: mosaic for packed differs by")
    assert attention.kernel_for(CARD, HEADS, Layout.PACKED) is Kernel.CUDNN_OFFSETS
    attention.REFUSED.clear()
    kernels()
    assert attention_check.refused(CARD, HEADS, [Layout.PACKED], tmp_path) == [message]
    (tmp_path / "attention.json").write_text("{")
    attention.REFUSED.clear()
    assert attention_check.refused(CARD, HEADS, [Layout.PACKED], tmp_path) == []


def test_tokamax_is_imported_before_a_program_is_traced_also_where_its_answer_is_known(kernels, tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(mosaic, "load", lambda: loaded.append(1))
    for _ in range(2):
        assert attention_check.refused(CARD, HEADS, [Layout.PACKED], tmp_path) == []
    assert len(loaded) == 2


@pytest.mark.parametrize(
    ("installed", "names"),
    [
        (Versions((0, 10, 2), (9, 10, 0)), "this is jax 0.12.3;"),
        (Versions((0, 11, 2)), "this is jax 0.12.3 without cuDNN;"),
        (Versions((0, 11, 2), (9, 10, 0)), ""),
    ],
)
def test_a_run_says_in_one_line_that_newer_libraries_have_faster_attention(tmp_path, monkeypatch, installed, names):
    hopper = SimpleNamespace(platform="gpu", compute_capability="9.0")
    mesh = SimpleNamespace(devices=np.array([hopper], object))
    monkeypatch.setattr(jax, "__version__", "0.12.3")
    monkeypatch.setattr(attention_check, "versions", lambda: installed)
    monkeypatch.setattr(attention, "kernel_for", lambda mesh, heads, layout: Kernel.PLAIN)
    messages = attention_check.refused(mesh, HEADS, list(Layout), tmp_path)
    assert len(messages) == bool(names)
    for message in messages:
        assert message.startswith("attention as fast as this card allows takes jax 0.11.2 or newer")
        assert names in message and "Python 3.12" in message and len(message) <= 240 and "\n" not in message
    a100 = SimpleNamespace(platform="gpu", compute_capability="8.0")
    mesh = SimpleNamespace(devices=np.array([a100], object))
    old = attention_check.refused(mesh, HEADS, [Layout.PACKED], tmp_path)
    assert len(old) == (not installed.cudnn), "a mask is the fastest there, by any jax"


def test_gradients_are_compared_too(kernels, tmp_path):
    plain = attention.plain_packed_groups

    def wrong_gradient(mesh, q, k, v, ids):
        return plain(q, k, jax.lax.stop_gradient(v), ids)

    assert attention_check.difference(HEADS, Layout.PACKED) == ""
    kernels(packed_groups=wrong_gradient)
    assert attention_check.difference(HEADS, Layout.PACKED).startswith("differs by 100")


def test_other_devices_have_no_kernel_to_compare(kernels, tmp_path):
    kernels(packed_groups=absent)
    cpu = SimpleNamespace(devices=np.array([SimpleNamespace(platform="cpu")], object))
    assert attention_check.refused(cpu, HEADS, list(Layout), tmp_path) == []
    assert not list(tmp_path.iterdir())
