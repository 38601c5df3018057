"""The comparison of a card's attention kernels with the plain form: what it refuses and says."""

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
    monkeypatch.setattr(attention, "versions", lambda: Versions((0, 11, 2), (9, 10), (0, 0, 17)))
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
def test_a_kernel_that_gives_what_the_plain_form_gives_is_used(kernels, layout):
    assert attention_check.refused(CARD, HEADS, [layout]) == []
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
def test_one_that_does_not_is_refused(kernels, form, says):
    kernels(packed_groups=form)
    first, *others = attention_check.refused(CARD, HEADS, [Layout.PACKED, Layout.GROUPS])
    assert first.startswith("attention by cudnn-offsets: mosaic for packed " + says)
    assert [other.partition(f" {says}")[0] for other in others] == [
        "attention by cudnn-mask: cudnn-offsets for packed",
        "attention in plain JAX, which is slower: cudnn-mask for packed",
    ]
    kinds = (Kernel.MOSAIC, Kernel.CUDNN_OFFSETS, Kernel.CUDNN_MASK)
    assert {(kernel, Layout.PACKED) for kernel in kinds} == attention.REFUSED
    assert attention.kernel_for(CARD, HEADS, Layout.PACKED) is Kernel.PLAIN
    assert attention.kernel_for(CARD, HEADS, Layout.GROUPS) is Kernel.CUDNN


def other_prompts(mesh, q, cache, lengths, t):
    return plain_tokens(mesh, q, cache, lengths[::-1], t)


def test_a_kernel_that_decodes_wrongly_gives_way_to_the_plain_form(kernels):
    assert attention.decodes_by_kernel(CARD, HEADS, 2)
    kernels(of_tokens=other_prompts)
    (message,) = attention_check.refused(CARD, HEADS, [Layout.DECODE])
    assert message.startswith("attention in plain JAX, which is slower: triton for decode differs by")
    assert not attention.decodes_by_kernel(CARD, HEADS, 2)


def test_without_the_triton_backend_of_pallas_the_plain_form_decodes(monkeypatch):
    """JAX says that it will be removed."""
    monkeypatch.setattr(attention, "REFUSED", set())
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", None)
    monkeypatch.delattr(jax.experimental.pallas, "triton", raising=False)
    (message,) = attention_check.refused(CARD, HEADS, [Layout.DECODE])
    assert message.startswith(
        "attention in plain JAX, which is slower: triton for decode does not run (ModuleNotFoundError"
    )
    assert not attention.decodes_by_kernel(CARD, HEADS, 2)
    without = "import sys; sys.modules['jax.experimental.pallas.triton'] = None; import podwright.train.grpo.rollout"
    subprocess.run([sys.executable, "-c", without], check=True)


def test_one_whose_next_best_is_right_gives_way_to_that(kernels):
    def by_kernel(mesh, q, k, v, ids):
        if attention.kernel_for(CARD, HEADS, Layout.PACKED) is Kernel.MOSAIC:
            return no_documents(mesh, q, k, v, ids)
        return attention.plain_packed_groups(q, k, v, *(() if ids is None else (ids,)))

    kernels(packed_groups=by_kernel)
    (message,) = attention_check.refused(CARD, HEADS, [Layout.PACKED])
    assert message.startswith("attention by cudnn-offsets: mosaic for packed differs by")
    assert attention.kernel_for(CARD, HEADS, Layout.PACKED) is Kernel.CUDNN_OFFSETS


def test_tokamax_is_imported_before_a_program_is_traced(kernels, monkeypatch):
    loaded = []
    monkeypatch.setattr(mosaic, "load", lambda: loaded.append(1))
    assert attention_check.refused(CARD, HEADS, [Layout.PACKED]) == [] and loaded == [1]


def test_gradients_are_compared_too(kernels):
    plain = attention.plain_packed_groups

    def wrong_gradient(mesh, q, k, v, ids):
        return plain(q, k, jax.lax.stop_gradient(v), ids)

    assert attention_check.difference(HEADS, Layout.PACKED) == ""
    kernels(packed_groups=wrong_gradient)
    assert attention_check.difference(HEADS, Layout.PACKED).startswith("differs by 100")


def test_other_devices_have_no_kernel_to_compare(kernels):
    kernels(packed_groups=absent)
    cpu = SimpleNamespace(devices=np.array([SimpleNamespace(platform="cpu")], object))
    assert attention_check.refused(cpu, HEADS, list(Layout)) == []
