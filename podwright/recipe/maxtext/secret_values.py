"""Values of a MaxText recipe that look like secrets: scripts, manifests and records would show them to whoever reads them."""

from __future__ import annotations

import re

from podwright.errors import UserError, listed
from podwright.recipe.maxtext.schema import VARIABLE, MaxTextRecipe

_NAMES = re.compile(r"(?:.*[_-])?(?:(?:access|auth|api|hf)?token|(?:api|access|private)?key|secret|password|passwd)", re.IGNORECASE)  # fmt: skip
_OF_TOKENIZER = re.compile(r"(?:reasoning|solution)_(?:start|end)_token")  # keys of MaxText that hold marks of a prompt
_KNOWN_FORMS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{20,}|glpat-[\w-]{20,}|sk-[\w-]{20,}|AKIA[A-Z0-9]{16}|AIza[\w-]{35}|ya29\.[\w-]{20,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|\bwandb +login +(?:\S+ +){0,8}[0-9a-f]{40}\b"
)
"""tokens of Hugging Face, GitHub, GitLab, OpenAI, AWS and Google, private keys, and a key of wandb behind its command"""
_ASSIGNED = re.compile(r"\b\w*(?:TOKEN|KEY|SECRET|PASSWORD)=(?![\"']?(?:\$|\Z|[\s\"']))")
"""a variable of the shell that gets a value written out"""
_NO_SECRET = re.compile(r"|true|false|none|null|[-+]?\d{1,11}(?:\.\d*)?|<.*>|(?:gs:/|~|\.{0,2})/.*", re.IGNORECASE)
"""values of a key that hold none: a switch, a short number, a mark to be filled in, a path"""
SECRET = "podwright-env"
"""that pods read their variables from, if the namespace has it"""


def keys(recipe: MaxTextRecipe) -> list[str]:
    """Keys whose values look like secrets, in the order of the recipe. Values are never returned."""
    return [key for key, text in recipe.texts.items() if _looks_secret(key, text)]


def _looks_secret(key: str, text: str) -> bool:
    section, _, name = key.partition(".")
    if key == "xpk.env":
        name, _, text = text.partition("=")
        return _is_secret(name, text)
    if section == "environment" or (section == "arguments" and not _OF_TOKENIZER.fullmatch(name)):
        return _is_secret(name, text)
    is_assigned = section == "launch" and _ASSIGNED.search(text)
    return bool(is_assigned or _KNOWN_FORMS.search(text))


def _is_secret(name: str, value: str) -> bool:
    if _KNOWN_FORMS.search(value):
        return True
    if value.startswith("$") and not VARIABLE.fullmatch(value):
        return False
    written = VARIABLE.sub("", value)  # what is filled in is looked at once it is
    return bool(_NAMES.fullmatch(name)) and not _NO_SECRET.fullmatch(written)


def problem(recipe: MaxTextRecipe) -> tuple[str, str] | None:
    """What is wrong and what to type, where a value looks like a secret."""
    if not (wrong := keys(recipe)):
        return None
    what = f"{listed(wrong)} look{'s' * (len(wrong) == 1)} like a secret, which records would show"
    lines = " and ".join(f"{name}=..." for name in dict.fromkeys(_variable(recipe, key) for key in wrong))
    create = f"kubectl create secret generic {SECRET} --from-env-file=FILE with a line {lines}"
    return what, f"leave it out, and type {create}: pods get its variables"


def _variable(recipe: MaxTextRecipe, key: str) -> str:
    """The variable of the container that takes the place of a key: MaxText reads HF_TOKEN, and M_KEY for any other key."""
    section, _, name = key.partition(".")
    if key == "xpk.env":
        return recipe.xpk["env"].partition("=")[0]
    if section == "environment":
        return name
    if section == "arguments" and name != "hf_access_token":
        return f"M_{name.upper()}"
    text = recipe.texts[key]
    if assigned := re.search(r"\b(\w*(?:TOKEN|KEY|SECRET|PASSWORD))=", text):
        return assigned[1]
    return "WANDB_API_KEY" if "wandb" in text else "HF_TOKEN"


def require_none(recipe: MaxTextRecipe) -> None:
    """UserError for a value that looks like a secret."""
    if wrong := problem(recipe):
        what, fix = wrong
        raise UserError(what, fix, "secret-value")
