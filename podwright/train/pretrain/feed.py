"""The recipe's stream of tokens as batches on the devices: each process reads its own rows, and a resume needs only the step."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh

from podwright.data import documents, tokens
from podwright.data.tokens import Row, Rows
from podwright.recipe.pretrain import PretrainRecipe
from podwright.rundir import Record, RunDir
from podwright.train import data_record
from podwright.train.data_record import Written
from podwright.train.mesh import batch_sharding, token_sharding
from podwright.train.pretrain.program import PretrainBatch


@dataclasses.dataclass(frozen=True)
class Feed:
    recipe: PretrainRecipe
    mesh: Mesh
    training: Rows
    held: Rows | None
    about: dict[str, Any]
    """of the training data: source, tokens, documents, rows an epoch"""
    rows: Record
    """what the next attempt compares its data with"""
    notices: list[str]

    @functools.cached_property
    def _own(self) -> slice:
        """The rows of a batch that lie on this process's devices."""
        size = self.recipe.batch_size
        indices = batch_sharding(self.mesh).addressable_devices_indices_map((size,)).values()
        spans = [index[0].indices(size) for index in indices if index]
        return slice(min(start for start, _, _ in spans), max(stop for _, stop, _ in spans))

    def batches(self, start_step: int) -> tokens.Batches:
        """Rows of this process, from step `start_step` on."""
        epochs = self.recipe.data.num_epochs or None
        return tokens.batches(self.training, self.recipe.batch_size, start_step, self._own, epochs)

    def held_out(self) -> Iterator[Row]:
        """The held-out rows, once."""
        if self.held is None:
            return iter(())
        return tokens.batches(self.held, self.recipe.batch_size, 0, self._own, 1)

    def on_devices(self, own: Row) -> PretrainBatch:
        """Global arrays out of the rows of every process; a target that does not count is -1."""
        first = self._own.start
        shape = (self.recipe.batch_size, self.recipe.sequence_length)
        named = own | {"targets": np.where(own["loss_mask"], own["targets"], -1)}

        def laid(value: np.ndarray[Any, Any]) -> Array:
            def part(index: Any) -> np.ndarray[Any, Any]:
                start, stop, _ = index[0].indices(shape[0])
                return value[start - first : stop - first, index[1]]

            return jax.make_array_from_callback(shape, token_sharding(self.mesh), part)

        return PretrainBatch(*(laid(named[name]) for name in ("tokens", "targets", "positions", "segment_ids")))


def open_(run: RunDir, recipe: PretrainRecipe, vocab_size: int, mesh: Mesh, before: Written) -> Feed:
    """UserError for whatever is wrong with the data. `before`: what earlier attempts of the run have read."""
    data = recipe.data
    loaded = documents.load(
        data.source,
        tokenizer=data.tokenizer,
        eos_id=data.eos_id,
        vocab_size=vocab_size,
        num_documents=data.num_documents,
        seed=recipe.seed,
        columns=data.columns,
    )
    holdout = recipe.evaluation.num_batches * recipe.batch_size
    first = before.read.get("documents")
    multiple = recipe.model.document_multiple
    training, held = tokens.split(loaded, recipe.sequence_length, holdout, recipe.seed, multiple, first)
    parts = [_rows(part) for part in (training, held)]
    rows, notices = data_record.check(run, data.source, before, {"documents": len(loaded)}, *parts)
    about = {
        "source": data.source,
        "tokens": training.documents.tokens,
        "documents": len(training.documents),
        "rows": len(training),
        "held_out_documents": len(held.documents) if held else 0,
    }
    return Feed(recipe, mesh, training, held, about, rows, notices)


def _rows(part: Rows | None) -> data_record.DataRows:
    if part is None:
        return data_record.rows([])
    return data_record.DataRows(len(part.documents), part.documents.digest, part.documents.marks)


def unigram_entropy(counts: np.ndarray) -> float:
    """Nats a token: the least loss that a model reaches if it knows no context, and how often each id comes: `counts`."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())
