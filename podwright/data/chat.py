"""Chat templates: finding a tokenizer's own, rendering it in a sandbox, and the one that our own tokenizers get.

Templates come with downloaded files, so they see plain data only and can neither change it nor reach outside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from podwright.errors import UserError

# Qwen3's format of system, user and assistant turns. As there, earlier turns of the assistant go without their thoughts,
# and with thinking off an empty thought is put before the answer.
TEMPLATE = """\
{%- for message in messages %}
{%- set text = message.content %}
{%- if message.role == 'assistant' and not loop.last and '</think>' in text %}
{%- set text = text.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ text ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}
"""
_FIRST = re.compile(r"\A\{%- set enable_thinking = enable_thinking \| default\((?:true|false)\) %\}\n")
"""first line of an exported template"""
FIX = "fix chat_template.jinja, or remove it to use Qwen3's format"


class _Generation(Extension):
    """{% generation %} marks the assistant's words for training elsewhere; here they are just rendered."""

    tags: set[str] = {"generation"}  # noqa: RUF012 - the type that jinja2 declares

    def parse(self, parser: Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def find_template(config: Mapping[str, Any], file: bytes | None) -> str:
    """The template of chat_template.jinja, else of tokenizer_config.json (one, or several by name), else Qwen3's format."""
    if file is not None:
        return file.decode()
    inline = config.get("chat_template")
    if isinstance(inline, list):
        inline = {named["name"]: named["template"] for named in inline}.get("default")
    return inline or TEMPLATE


def with_thinking(template: str, enable_thinking: bool | None) -> str:
    """`template` with a first line by which thinking is on or off where the caller does not say. As it is for None, and where the
    template knows no thinking."""
    if enable_thinking is None or "enable_thinking" not in template:
        return template
    first = f"{{%- set enable_thinking = enable_thinking | default({str(enable_thinking).lower()}) %}}\n"
    return first + _FIRST.sub("", template)


def compiled(template: str) -> jinja2.Template:
    """`template` ready to be rendered often; UserError when it is not a template."""
    try:
        return _environment().from_string(template)
    except jinja2.TemplateError as e:
        raise UserError(f"the chat template is wrong ({e})", FIX, "chat-template") from e


def render(template: jinja2.Template, **variables: Any) -> str:
    """`template` with `variables` filled in; UserError when it fails or refuses the conversation."""
    try:
        return template.render(**variables)
    except Exception as e:  # its expressions raise what Python raises for them, such as ZeroDivisionError
        reason = str(e) if isinstance(e, jinja2.TemplateError) else f"{type(e).__name__}: {e}"
        raise UserError(f"the chat template cannot be rendered ({reason})", FIX, "chat-template") from e


def _environment() -> ImmutableSandboxedEnvironment:
    """White space, filters and functions as transformers gives them to templates, but for the date, which is `Tokenizer`'s."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    return environment


def _to_json(value: Any, **options: Any) -> str:
    """Unlike jinja2's own filter, which escapes for HTML."""
    return json.dumps(value, **({"ensure_ascii": False} | options))


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
