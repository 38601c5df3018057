"""What an update needs on one device, without one: the real update on meta tensors, every storage counted while it lives.

The largest lines of the recipe decide. PyTorch's own tracker gives the same sum, but cannot follow frozen weights and takes a minute.
"""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from podwright.data.lines import Lengths, lengths
from podwright.recipe import load
from podwright.recipe.llm import LlmDims
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.train.multimodal import updates
from podwright.train.multimodal.data import batches
from podwright.train.multimodal.networks import model
from podwright.train.multimodal.networks.model import MODALITIES, MultimodalBatch
from podwright.train.multimodal.processes.machine import Stopwatch
from podwright.train.multimodal.processes.world import World
from podwright.train.multimodal.updates import Learner

_BLOCK = 512  # bytes that CUDA's allocator rounds up to
_TRIES = 8


def needs(spec: dict[str, Any]) -> dict[str, Any]:
    """`spec`: recipe, dims of its language model, devices, limit_bytes (or None) that the largest batch has to keep."""
    recipe = load.require(load.parse(spec["recipe"]), MultimodalRecipe)
    longest = lengths(recipe)
    shadow = Shadow(recipe, LlmDims(**spec["dims"]), spec["devices"])
    own, limit = recipe.per_device_batch_size, spec["limit_bytes"]
    counted = shadow.update(own, longest)
    peaks = {own: counted["peak_bytes"]}

    def peak(lines: int) -> int:
        return peaks.get(lines) or shadow.update(lines, longest)["peak_bytes"]

    most = largest(peak, own, limit) if limit else None
    return {**counted, **dataclasses.asdict(longest), "largest_batch_size": most}


class Shadow:
    """A recipe's model and optimizer as meta tensors."""

    def __init__(self, recipe: MultimodalRecipe, dims: LlmDims, devices: int):
        with torch.device("meta"):
            built = model.around(model.random(dims), recipe)
        self._devices = devices
        built.llm.model.register_forward_pre_hook(_unmasked, with_kwargs=True)
        self._mode = FakeTensorMode()
        with self._mode:
            _filled(built)
            learner = updates.assembled(built.train(), built, recipe, World(), max_steps=2)
            for p in built.trained().values():
                p.grad = torch.zeros_like(p)
            learner.optimizer.step()
            learner.optimizer.zero_grad(set_to_none=True)
        # to scale the loss of float16 asks for numbers, of which there are none
        self.learner: Learner = dataclasses.replace(learner, scaler=torch.amp.GradScaler("cpu", enabled=False))

    def update(self, batch_size: int, longest: Lengths) -> dict[str, int]:
        """Bytes at the fullest moment of a step of `batch_size` lines on each device, and what of that stays for the whole run."""
        recipe, built = self.learner.recipe, self.learner.model
        width = batches.widest(longest.tokens)
        with self._mode, _Counter() as counter:
            counter.count([*built.parameters(), *built.buffers()])
            weights = counter.now
            counter.count(tree_leaves(self.learner.optimizer.state_dict()["state"]))
            optimizer = counter.now - weights
            batch = MultimodalBatch(
                torch.zeros(batch_size, len(MODALITIES), recipe.aligner.dim),
                torch.ones(batch_size, len(MODALITIES), dtype=torch.bool),
                torch.zeros(batch_size, width, dtype=torch.long),
                torch.zeros(batches.rounded(batch_size * longest.response), dtype=torch.long),
            )
            parts = min(
                2, recipe.training.gradient_accumulation_steps
            )  # from the second on there are gradients beside it
            updates.advance(self.learner, [batch] * parts, batch_size * longest.response * parts, 0, Stopwatch(World()))
        sizes = {"peak_bytes": counter.peak, "weights_bytes": weights, "optimizer_bytes": optimizer}
        if self._devices > 1 and recipe.training.fsdp:
            return self._split(sizes)
        if self._devices > 1:  # with DDP gradients are added up in buckets, which stay
            sizes["peak_bytes"] += _bytes(self.learner.model.trained().values())
        return sizes

    def _split(self, sizes: dict[str, int]) -> dict[str, int]:
        """With FSDP2, at most: what is kept is split, and what is computed with is whole: a layer, the next, and all that is no layer."""
        layers = self.learner.model.layers
        all_bytes = _bytes(self.learner.model.parameters())
        at_once = all_bytes - _bytes(layers.parameters()) + 2 * _bytes(layers[0].parameters())
        kept = {name: math.ceil(sizes[name] / self._devices) for name in ("weights_bytes", "optimizer_bytes")}
        saved = sizes["weights_bytes"] + sizes["optimizer_bytes"] - sum(kept.values())
        return kept | {"peak_bytes": sizes["peak_bytes"] - saved + at_once}


class _Counter(TorchDispatchMode):
    """Bytes of all storages that operations made and nobody has dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive: dict[int, int] = {}

    def count(self, values: Any) -> None:
        for value in values:
            if not isinstance(value, Tensor):
                continue
            storage = value.untyped_storage()
            if storage._cdata not in self._alive:
                size = math.ceil(storage.nbytes() / _BLOCK) * _BLOCK
                self._alive[storage._cdata] = size
                self.now += size
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._dropped, storage._cdata)

    def _dropped(self, key: int) -> None:
        self.now -= self._alive.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count(tree_leaves(out))
        return out


def _unmasked(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """transformers writes a causal mask out where it cannot look at numbers, and leaves it to the attention where it can."""
    return args, kwargs | {"attention_mask": {"full_attention": None}}


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _filled(built: nn.Module) -> None:
    """Fake tensors for those of the meta device, which knows neither autocast nor the attention that would run; tied ones stay tied."""
    replaced: dict[int, tuple[nn.Parameter, Tensor]] = {}
    for module in built.modules():
        for name, p in module._parameters.items():
            if p is not None:
                fake = nn.Parameter(torch.empty(p.shape, dtype=p.dtype), requires_grad=p.requires_grad)
                module._parameters[name], _ = replaced.setdefault(id(p), (fake, p))
        for name, b in module._buffers.items():
            if b is not None:
                module._buffers[name] = torch.empty(b.shape, dtype=b.dtype)


def largest(peak: Callable[[int], int], own: int, limit_bytes: float) -> int:
    """The most lines whose `peak` keeps the limit, to a fiftieth, beginning from `own`; 0 where not even one does.

    The peak grows in straight lines, each steeper than the one before, as another moment of the step becomes the fullest.
    """
    known = {lines: peak(lines) for lines in {1, max(2, own)}}
    fitted = True
    for _ in range(_TRIES):
        fits = sorted(n for n, size in known.items() if size <= limit_bytes)
        over = min((n for n, size in known.items() if size > limit_bytes), default=None)
        if not fits:
            return 0
        if over is not None and over - fits[-1] <= max(1, fits[-1] // 50):
            break
        # on from two that fit, or, where that was too far, between one that does and one that does not
        if len(fits) > 1 and (fitted or over is None):
            a, b = fits[-2:]
        else:
            a, b = fits[-1], over or fits[-1] + 1
        steep = (known[b] - known[a]) / (b - a)  # 0 where the optimizer's step is the fullest moment
        guess = math.floor(fits[-1] + (limit_bytes - known[fits[-1]]) / steep) if steep else 2 * b
        guess = min(max(guess, fits[-1] + 1), over - 1 if over else guess + 1)
        known[guess] = peak(guess)
        fitted = known[guess] <= limit_bytes
    return max(n for n, size in known.items() if size <= limit_bytes)
