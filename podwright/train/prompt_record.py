"""What lies beside exported weights so that a model answers there as it did in its run.

transformers reads the chat template, whose default is the thinking of the run, and the generation config, which ends an answer where
the run did. `podwright eval DIR` reads podwright.json. The instruction of a recipe stands there alone: in the template it would come
twice where the caller writes one, as in a chat or in lm-eval.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from pydantic import Field, ValidationError

from podwright.data import chat
from podwright.data.tokenizer import Tokenizer
from podwright.errors import UserError
from podwright.recipe.schema import PositiveInt, Section
from podwright.rundir import read_json, write_json

RECORD = "podwright.json"


class PromptRecord(Section):
    """How a run asked its questions, and where an answer ended."""

    instruction: str
    """text behind each question"""
    system: str
    """system turn of every row"""
    date: datetime.date
    """that a chat template has for today's"""
    enable_thinking: bool | None
    """None: as the chat template has it"""
    stop_ids: tuple[int, ...] = Field(min_length=1)
    max_prompt_length: PositiveInt
    """longer prompts were left out"""
    max_new_tokens: PositiveInt
    compute_dtype: str
    """of the model in the tests of the run"""


def read(directory: Path) -> PromptRecord | None:
    """The record of an export; None for a directory without one. UserError where it is damaged."""
    file = directory / RECORD
    if not file.exists():
        return None
    try:
        return PromptRecord.model_validate_json(file.read_bytes())
    except ValidationError as e:
        fix = "export the run again, or remove the file to ask as the chat template does"
        raise UserError(f"{file} is damaged or of another version", fix, "damaged-file") from e


def write(directory: Path, tokenizer: Tokenizer, record: PromptRecord) -> None:
    """The files of `tokenizer` with the defaults of the run, and the record. The chat template is in a file of its own, as transformers
    saves it."""
    tokenizer.save(directory)
    template = chat.with_thinking(tokenizer.template, record.enable_thinking)
    (directory / "chat_template.jinja").write_bytes(template.encode())
    config, generation = directory / "tokenizer_config.json", directory / "generation_config.json"
    settings = read_json(config)
    if settings.pop("chat_template", None):
        write_json(config, settings)
    answers = {
        "bos_token_id": read_json(generation).get("bos_token_id"),
        "do_sample": False,
        "eos_token_id": record.stop_ids,
        "pad_token_id": tokenizer.pad_id,
        "max_new_tokens": record.max_new_tokens,
    }
    write_json(generation, answers)
    write_json(directory / RECORD, record.model_dump(mode="json"))


def python_lines(directory: Path, turns: list[dict[str, str]], record: PromptRecord) -> list[str]:
    """Python that asks the exported model as the run did."""
    place = repr(str(directory))
    options = "add_generation_prompt=True, return_dict=True, return_tensors='pt'"
    answer = f"model.generate(**prompt, do_sample=False, max_new_tokens={record.max_new_tokens})[0]"
    return [
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        f"tokenizer, model = AutoTokenizer.from_pretrained({place}), AutoModelForCausalLM.from_pretrained({place})",
        f"prompt = tokenizer.apply_chat_template({turns!r}, {options})",
        f"print(tokenizer.decode({answer}[prompt['input_ids'].shape[1] :], skip_special_tokens=True))",
    ]
