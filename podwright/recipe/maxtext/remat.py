"""Which activations a run of MaxText keeps for the backward pass, and what it therefore computes a second time.

Source: get_remat_policy in src/maxtext/layers/decoders.py and the keys under remat_policy in base.yml of MaxText e591f30 (2026-08-22).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from podwright.recipe.yaml_file import facts

_FACTS = facts(__file__)
POLICIES: dict[str, list[str]] = _FACTS["policies"]


@dataclass(frozen=True)
class Recomputed:
    """Parts of a layer that run forward again in the backward pass. The last product of a layer never does: nothing needs its result."""

    queries: bool
    keys_values: bool
    scores: bool
    """attention itself"""
    output: bool
    mlp: bool
    """the products into an MLP or expert"""
    logits: bool
    """the unembedding, where num_vocab_tiling splits it"""


def recomputed(arguments: Mapping[str, str]) -> Recomputed | None:
    """None for a policy that is not known here."""
    policy = arguments.get("remat_policy", "full").lower()
    if policy == "custom":
        kept = {key for key in _FACTS["keys"] if arguments.get(key, "remat") in ("device", "offload")}
    elif policy in POLICIES:
        kept = set(POLICIES[policy])
    else:
        return None
    for fused, parts in _FACTS["fused"].items():
        if fused in kept:
            kept.update(parts)
    return Recomputed(
        queries="query_proj" not in kept,
        keys_values=not kept >= {"key_proj", "value_proj"},
        scores="context" not in kept,
        output="out_proj" not in kept,
        mlp=kept.isdisjoint({"mlpwi", "mlpwi_0"}),
        logits=arguments.get("num_vocab_tiling", "1") not in ("0", "1"),
    )
