"""What a recipe says of its data reaches the rows that are trained on."""

import jax
import numpy as np

from podwright.recipe import load, pretrain
from podwright.rundir import RunDir
from podwright.train.data_record import Written
from podwright.train.mesh import make_mesh
from podwright.train.pretrain import feed


def test_files_without_a_word_on_documents_are_cut_at_the_recipes_token(tmp_path):
    ids = np.ones(4000, np.uint16)
    ids[99::100] = 7
    np.save(tmp_path / "a.npy", ids)
    mesh = make_mesh(pretrain.PretrainMesh(), jax.devices()[:1])
    small = [
        f"data.source={tmp_path}",
        "data.tokenizer=",
        "batch_size=2",
        "sequence_length=64",
        "evaluation.num_batches=1",
    ]
    single = feed.open_(RunDir(tmp_path / "run"), load.load("almodel-tiny", small), 259, mesh, Written({}, {}))
    assert single.about["documents"] == single.about["held_out_documents"] == 1, "the end of it is held out"
    cut = feed.open_(
        RunDir(tmp_path / "run"), load.load("almodel-tiny", [*small, "data.eos_id=7"]), 259, mesh, Written({}, {})
    )
    assert cut.about["documents"] + cut.about["held_out_documents"] == 40
    row = next(cut.batches(0))
    assert (np.diff(row["segment_ids"], axis=1) != 0).any() and row["positions"].max() < 100
