"""What a plan says of the tokenizer of pretraining, by the code of training on the first documents of a text.

It runs in a process of its own, without JAX.
"""

from __future__ import annotations

import itertools

from podwright.data import texts
from podwright.errors import UserError
from podwright.recipe import corpus, dimensions
from podwright.recipe.location import Location
from podwright.recipe.pretrain import PretrainRecipe
from podwright.rundir import Record

_DOCUMENTS = 1_000
_BYTES = 4 << 20  # of a document that is a file


def findings(recipe: PretrainRecipe) -> list[Record]:
    """Each {check, level, message, fix}; [] where training takes the tokenizer, or needs none."""
    data = recipe.data
    dims = dimensions.find(recipe.model.name, recipe.model.gate, recipe.model.kda)
    try:
        tokenizer = texts.find_tokenizer(data.source, data.tokenizer)
        if tokenizer is not None and corpus.is_text(data.source):
            corpus.fits(tokenizer.vocab_size, dims.vocab_size, f"the tokenizer {data.tokenizer}")
            if data.source == "arithmetic" or Location.of(data.source).local is not None:
                first = _first(recipe)
                tokenizer.documents(first)
                tokenizer.require_known(first)
        if not corpus.is_text(data.source) and (records := corpus.records(Location.of(data.source))):
            from podwright.data import documents  # needs the package grain, which other sources do without here

            documents.require_records(records)
    except UserError as e:
        return [{"check": "data", "level": "error", "message": e.what, "fix": e.fix}]
    return []


def _first(recipe: PretrainRecipe) -> list[str]:
    """Documents of the text."""
    source = recipe.data.source
    if source.endswith(".txt"):
        return [Location.of(source).read(0, _BYTES).decode(errors="ignore")]
    return list(
        itertools.islice(texts.read(source, min(recipe.data.num_documents or _DOCUMENTS, _DOCUMENTS)), _DOCUMENTS)
    )
