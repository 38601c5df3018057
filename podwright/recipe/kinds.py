"""The kinds of recipe, each run by one trainer."""

from __future__ import annotations

from podwright.recipe.contrastive import ContrastiveRecipe
from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoRecipe

JaxRecipe = GrpoRecipe | PretrainRecipe
"""what is compiled before it runs, over a mesh"""
TorchRecipe = MultimodalRecipe | ContrastiveRecipe
"""what takes a process for each device"""
Recipe = JaxRecipe | TorchRecipe
KINDS: dict[str, type[Recipe]] = {
    "grpo": GrpoRecipe,
    "pretrain": PretrainRecipe,
    "multimodal": MultimodalRecipe,
    "contrastive": ContrastiveRecipe,
}
