"""Results of the verbs that the compute half answers, in a few lines each; every figure is in --json."""

from __future__ import annotations

import json
from collections.abc import Iterator

from podwright.errors import abbreviated, counted
from podwright.rundir import Record
from podwright.watch.figures import percent


def evaluation(result: Record) -> Iterator[str]:
    """Of `eval`: a model of kind grpo by its strict answers, a multimodal one by the fields of its answers."""
    model = result["checkpoint"] + ("" if result.get("step") is None else f" at step {result['step']}")
    graded, unit = (result["strict"], "question") if "strict" in result else (result["accuracy"], "line")
    yield f"{model} on {result['data']}: {_share(graded)} correct of {counted(result['num'], unit)}"
    if "strict" in result:
        yield f"flexible (last number of an answer): {_share(result['flexible'])}"
        yield f"{result['mean_tokens']:,.0f} tokens an answer (mean); {percent(result['truncated'])} cut off at the limit"
    else:
        yield f"valid JSON: {_share(result['json_valid'])}; loss {result['loss']:.3g}"
        for field, share in result["fields"].items():
            majority = result.get("majority_fields", {}).get(field)
            yield f"  {field}: {_share(share)}" + ("" if majority is None else f"; majority class {percent(majority)}")
        for name, without in result.items():
            if name.startswith("without_"):
                yield f"without {name.removeprefix('without_')}: {percent(without['accuracy'])}"
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


def check(result: Record) -> Iterator[str]:
    """Of `data check`: what is there, what of it is valid, and whether that will do."""
    for name, part in result.get("files", {}).items():
        yield f"{part.get('source', name)}: {counted(part['lines'], 'line')}, {part['valid']:,} valid{_fields(part)}"
    number = result["num_faults"]
    there = _there(result)
    if not number:
        yield f"{result['source']}: OK: no problems found in {there}"
    else:
        listed = "" if number <= len(result["faults"]) else f" (the first {len(result['faults'])} are listed)"
        yield f"{result['source']}: {counted(number, 'fault')} in {there}{listed}"
    for part in (result, *result.get("files", {}).values()):
        for field, counts in part.get("classes", {}).items():
            yield f"  {field}: " + ", ".join(f"{value} ({n:,})" for value, n in counts.items())
        if "fixed" in part:
            yield f"the valid lines are in {part['fixed']}"


def _there(result: Record) -> str:
    """What a source holds, in numbers."""
    if "shards" not in result:
        return f"{counted(result['lines'], 'line')}, {result['valid']:,} valid{_fields(result)}"
    sizes = [f"{counted(result['shards'], 'shard')}, {result['valid']:,} valid"]
    if "tokens" in result:
        documents = result["documents"]
        vocabulary = result["vocab_size"]
        sizes.append(counted(result["tokens"], "token"))
        sizes.append("documents unknown" if documents is None else counted(documents, "document"))
        sizes.append("vocabulary unknown" if vocabulary is None else f"vocabulary of {vocabulary:,}")
        sizes.append(f"largest id {result['max_token']:,}")
    return ", ".join(sizes)


def _fields(part: Record) -> str:
    """How many lines have which field; of pairs, how many have a single modality."""
    if not part.get("fields"):
        return ""
    fields = ", ".join(f"{n:,} with {field}" for field, n in part["fields"].items())
    alone = f", {part['alone']:,} with a single modality" if part.get("alone") else ""
    return f" ({fields}{alone})"


def exported(result: Record) -> Iterator[str]:
    """Of `export`: where the model is, and what it is."""
    step = result.get("step")
    yield f"model{'' if step is None else f' of step {step:,}'} written to {result['directory']}"
    yield f"{abbreviated(result['num_params'])} parameters in {result['dtype']}"
    if "python" in result:
        yield "to ask it as the run did, in Python:"
        yield from result["python"]
    for graph, difference in result.get("onnx_differences", {}).items():
        yield f"{graph}: largest difference from PyTorch {difference:.2g}"


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
    raw = answer.pop("raw_model_output", "")
    faults = answer.pop("parsing_note", "")
    yield json.dumps(answer, indent=1, ensure_ascii=False) if answer else f"answer: {raw}"
    if faults:
        yield f"not valid in the schema: {faults}"
    yield f"written to {result['written_to']}"


def _share(graded: Record) -> str:
    return f"{percent(graded['accuracy'])} (95 % confidence interval {100 * graded['low']:.1f} to {100 * graded['high']:.1f} %)"
