"""The parts of a model that a plan divides the time of a step among are named in the programs themselves."""

import re

import jax

from podwright.plan.compiled.roofline import PARTS, part_of
from podwright.recipe import hybrid, load, pretrain
from podwright.train.mesh import make_mesh
from podwright.train.pretrain import program
from tests.unit.train import small


def parts(lowered):
    return {
        found[0] for name in re.findall(r'loc\("([^"]*)"', lowered.as_text(debug_info=True)) if (found := part_of(name))
    }


def test_every_part_is_named_in_a_program():
    recipe = load.load("almodel-tiny")
    setup = program.PretrainSetup(
        recipe, hybrid.find(recipe.model.name), make_mesh(pretrain.PretrainMesh(), jax.devices()[:1])
    )
    mixed = parts(program.programs(setup)["update"].lower())
    assert mixed == set(PARTS) - {"attention"}
    dense = small.program.programs(small.setup())
    assert parts(dense["update"].lower()) == {"embedding", "attention", "mlp", "head", "optimizer"}
    assert parts(dense["rollout"].lower()) == {"attention", "mlp", "head"}
