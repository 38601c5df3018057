"""The kinds of recipe, each run by one trainer."""

from __future__ import annotations

from podwright.recipe.multimodal import MultimodalRecipe
from podwright.recipe.pretrain import PretrainRecipe
from podwright.recipe.schema import GrpoRecipe

Recipe = GrpoRecipe | PretrainRecipe | MultimodalRecipe
KINDS: dict[str, type[Recipe]] = {"grpo": GrpoRecipe, "pretrain": PretrainRecipe, "multimodal": MultimodalRecipe}
