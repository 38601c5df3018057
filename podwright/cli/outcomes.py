"""Results of the verbs that the compute half answers, in a few lines each; every figure is in --json."""

from __future__ import annotations

import json
from collections.abc import Iterator

from podwright.errors import counted
from podwright.rundir import Record


def evaluation(result: Record) -> Iterator[str]:
    """Of `eval`: a model of kind grpo by its strict answers, a multimodal one by the fields of its answers."""
    model = result["checkpoint"] + ("" if result.get("step") is None else f" at step {result['step']}")
    graded, unit = (result["strict"], "question") if "strict" in result else (result["accuracy"], "line")
    yield f"{model} on {result['data']}: {_share(graded)} correct of {counted(result['num'], unit)}"
    if "strict" in result:
        yield f"flexible (last number of an answer): {_share(result['flexible'])}"
        yield f"{result['mean_tokens']:,.0f} tokens an answer (mean); {_percent(result['truncated'])} cut off at the limit"
    else:
        yield f"valid JSON: {_share(result['json_valid'])}; loss {result['loss']:.3g}"
        for field, share in result["fields"].items():
            majority = result.get("majority_fields", {}).get(field)
            yield f"  {field}: {_share(share)}" + ("" if majority is None else f"; majority class {_percent(majority)}")
        for name, without in result.items():
            if name.startswith("without_"):
                yield f"without {name.removeprefix('without_')}: {_percent(without['accuracy'])}"
    if result["left_out"]:
        yield f"left out: {counted(result['left_out'], unit)} that cannot be used"


def count(result: Record) -> Iterator[str]:
    """Of `data count`."""
    documents = result["documents"]  # None of token files that do not say where documents end
    sizes = ["documents unknown" if documents is None else counted(documents, "document")]
    sizes.append(counted(result["tokens"], "token"))
    if "shards" in result:
        sizes.append(counted(result["shards"], "shard"))
    if result.get("bytes_per_token") is not None:
        sizes.append(f"{result['bytes_per_token']:.2f} bytes a token")
    yield f"{result['source']}: {', '.join(sizes)}"


def tokenization(result: Record) -> Iterator[str]:
    """Of `data tokenize`."""
    yield from count({key: result[key] for key in ("documents", "tokens", "shards")} | {"source": result["out"]})
    yield f"tokenizer {result['tokenizer']}: vocabulary of {result['vocab_size']:,}, end of document {result['eos_id']}"


def synthetic(result: Record) -> Iterator[str]:
    """Of `data draw`."""
    yield f"{result['out']}: {counted(result['train'], 'line')} to train on, {counted(result['val'], 'line')} held out"


def prediction(result: Record) -> Iterator[str]:
    """Of `predict`: the answer, what is wrong with it, and the file that holds it."""
    answer = dict(result["analysis"])
    raw, faults = answer.pop("raw_model_output", ""), answer.pop("parsing_note", "")
    yield json.dumps(answer, indent=1, ensure_ascii=False) if answer else f"answer: {raw}"
    if faults:
        yield f"not valid in the schema: {faults}"
    yield f"written to {result['written_to']}"


def _share(graded: Record) -> str:
    return f"{_percent(graded['accuracy'])} (95 % confidence interval {100 * graded['low']:.1f} to {100 * graded['high']:.1f} %)"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
