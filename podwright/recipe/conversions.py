"""Lines in the layouts of other programs, and what to type to convert a file of them.

Chat lines have `messages` of {role, content}, ShareGPT's `conversations` of {from, value}; Alpaca's have `instruction`, `input` and `output`.
A command is one line of Python that needs no package, so that it runs wherever Podwright does.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from podwright.recipe.text_lines import through

_QUESTION = ("question", "prompt", "problem", "query", "instruction", "input")
_ANSWER = ("answer", "response", "completion", "solution", "output")
_CHATS = (("messages", "role", "content", "user"), ("conversations", "from", "value", "human"))
"""key of the turns; in a turn the keys of speaker and text, and who asks"""
_PAIRED = {
    **dict.fromkeys(("caption", "description", "sentence", "label", "title"), "text"),
    **dict.fromkeys(("image_path", "img", "picture", "file_name"), "image"),
    **dict.fromkeys(("audio_path", "sound", "wav"), "audio"),
    **dict.fromkeys(("video_path", "clip"), "video"),
}


def to_questions(file: str, row: Any) -> str:
    """What to type for a file with such rows, so that GRPO can read it; "" where there is no conversion."""
    if chat := _chat(row):
        key, speaker, text, asker = chat
        question = f'next(x["{text}"] for x in r["{key}"] if x["{speaker}"]=="{asker}")'
        return _converted(file, f'{{"question":{question},"answer":r["{key}"][-1]["{text}"]}}')
    if not isinstance(row, dict):
        return ""
    question_key, answer_key = (next((k for k in keys if _is_text(row.get(k))), "") for keys in (_QUESTION, _ANSWER))
    if not question_key or not answer_key or (question_key, answer_key) == ("question", "answer"):
        return ""
    question = f'r["{question_key}"]'
    if question_key == "instruction" and "input" in row:
        question = '(r["instruction"]+"\\n"+(r.get("input") or "")).strip()'
    return _converted(file, f'{{"question":{question},"answer":r["{answer_key}"]}}')


def to_text(file: str, row: Any) -> str:
    """What to type for a file with such rows, so that pretraining can read it; "" where there is no conversion."""
    if chat := _chat(row):
        key, _, text, _ = chat
        return _converted(file, f'{{"text":"\\n\\n".join(x["{text}"] for x in r["{key}"])}}')
    if not isinstance(row, dict):
        return ""
    keys = [k for k in ("instruction", "input", "question", "prompt", "content", *_ANSWER) if _is_text(row.get(k))]
    if not keys:
        return ""
    joined = json.dumps(keys, separators=(",", ":"))
    return _converted(file, f'{{"text":"\\n\\n".join(r[k] for k in {joined} if r.get(k))}}')


def to_pairs(file: str, row: Any) -> str:
    """What to type for a file whose lines have keys that Phase 1 has other names for; "" where there are none."""
    names = paired_keys(row)
    if not names:
        return ""
    keys = json.dumps(names, separators=(",", ":"))
    return _converted(file, f"{{{keys}.get(k,k):v for k,v in r.items()}}")


def paired_keys(row: Any) -> dict[str, str]:
    """Keys of a row that stand for a field of Phase 1 -> that field; none for a field that the row has."""
    if not isinstance(row, dict):
        return {}
    names: dict[str, str] = {}
    for key, field in _PAIRED.items():
        if _is_text(row.get(key)) and field not in row and field not in names.values():
            names[key] = field
    return names


def _chat(row: Any) -> tuple[str, str, str, str] | None:
    """The layout of a row's turns, where somebody asks in them and all are text."""
    for layout in _CHATS:
        key, speaker, text, asker = layout
        turns = row.get(key) if isinstance(row, dict) else None
        if not isinstance(turns, list) or not all(isinstance(t, dict) and _is_text(t.get(text)) for t in turns):
            continue
        if any(t.get(speaker) == asker for t in turns):
            return layout
    return None


def _converted(file: str, expression: str) -> str:
    """Each line `r` of a file as what an expression in Python makes of it."""
    code = f'import json,sys; [print(json.dumps({expression})) for l in open(sys.argv[1],"rb") if l.strip() for r in [json.loads(l)]]'
    return through(file, f"python3 -c {shlex.quote(code)}", "lines")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
