"""Findings about a MaxText recipe and the script it is from, each with what to type. No cluster and no network is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.errors import UserError
from podwright.recipe.maxtext import lint_command, secret_values, xpk
from podwright.recipe.maxtext.imported import ImportedScript
from podwright.recipe.maxtext.lint_finding import LintFinding
from podwright.recipe.maxtext.schema import FROM_TARGET, VARIABLE, MaxTextRecipe

_UPLOAD = re.compile(r"gsutil\b.*\bcp\b|gcloud (?:alpha )?storage cp")
_UPLOAD_TO_ROOT = re.compile(r"\bcp\b.*\s/logs/")


def of_recipe(recipe: MaxTextRecipe) -> list[LintFinding]:
    """What can be seen in a recipe alone."""
    return [
        *_training_script(recipe),
        *_secrets(recipe),
        *_placeholders(recipe),
        *_words_without_key(recipe),
        *_log_upload(recipe),
        *_xpk_options(recipe),
        *_network(recipe),
        *lint_command.check(recipe),
    ]


def _branches(imported: ImportedScript) -> Iterator[LintFinding]:
    for each in imported.deciding:
        value = f"{each.name}={each.value:.60}" if each.value else f"an empty {each.name}"
        what = f"{each.name} decides more of what is launched than its own place: the recipe has the words for {value}"
        yield LintFinding("branch", "warning", what, f"for another value, import again with {each.name}=VALUE")


def of_script(imported: ImportedScript) -> list[LintFinding]:
    """What concerns the script as it would be submitted by hand: values that are missing, and how it went on."""
    findings = list[LintFinding]()
    unset = [name for name in imported.unset if name not in FROM_TARGET]
    if unset:
        lines = ", ".join(f"{name} (line {imported.unset[name]})" for name in unset)
        types = " ".join(f"{name}=VALUE" for name in unset)
        findings.append(
            LintFinding("unset", "warning", f"the script uses {lines} and does not set it", f"type {types}")
        )
    if imported.problem:
        fix = "end it in the script before submitting by hand"
        findings.append(LintFinding("bash", "warning", imported.problem, fix))
    if imported.trusted:
        what = "bash has run the script without a sandbox: it could write no file and reach no network, but it could read what you can read"
        findings.append(LintFinding("bash", "warning", what, "import it where user namespaces are allowed"))
    return [*findings, *_branches(imported)]


def _training_script(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    if recipe.launch.module.endswith(".sh"):
        name = recipe.launch.module.rpartition("/")[2]
        message = f"the container runs {recipe.launch.module}, whose arguments of MaxText are not known here"
        yield LintFinding(
            "training-script", "inconclusive", message, f"put {name} beside the launch script and import again"
        )


def _secrets(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    if wrong := secret_values.problem(recipe):
        yield LintFinding("secret", "error", *wrong)


def _placeholders(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    for key, value in recipe.texts.items():
        if key in ("launch.setup", "launch.after"):
            continue
        filled_in = (*FROM_TARGET, "ARTIFACT_DIR", "TPU_WORKER_ID")
        names = [name for name in VARIABLE.findall(value) if name not in filled_in]
        names += re.findall(r"<([A-Za-z][\w .-]*)>", value)
        if not names:
            continue
        fix = f"type {key}=VALUE"
        if key == "xla_flags":
            fix = f"type {names[0]}=VALUE with render and run, or write the flag out"
        if key in ("arguments.base_output_directory", "arguments.output_dir"):
            fix = f"type {key}='${{BASE_OUTPUT_DIR}}', which the target fills in"
        yield LintFinding("placeholder", "error", f"{key} is {value!r}, with {names[0]} still to be filled in", fix)


def _words_without_key(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    """Words among MaxText's arguments, before a pipe or the next command, that are no KEY=VALUE."""
    if "max" not in recipe.launch.module.lower():
        return
    behind = re.split(r"(?:^|\s)\d*[<>]|[|&;<>()`]", recipe.launch.after)[0]
    words = [word for word in behind.split() if not re.search(r"[=$]", word) and word[0] not in "-'\""]
    if words:
        message = f"{' '.join(words)}: a word without =, and MaxText takes KEY=VALUE"
        fix = f"write {'='.join([*words, 'VALUE'][:2])} in the script and import again"
        yield LintFinding("argument", "error", message, fix)


def _log_upload(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    after = recipe.launch.after
    fails = "the copy of the log to /logs/ fails after training, and the run counts as failed"
    if not _UPLOAD.search(after):
        return
    if _UPLOAD_TO_ROOT.search(after):
        what = f"the log is copied to /logs/, a folder of the container: {fails}"
        yield LintFinding("artifact-dir", "error", what, "write gs://BUCKET/FOLDER before /logs/ in launch.after")
    elif "${ARTIFACT_DIR}" in after:
        fix = "type ARTIFACT_DIR=gs://BUCKET/FOLDER when importing"
        yield LintFinding("artifact-dir", "error", f"ARTIFACT_DIR is empty in the script: {fails}", fix)


def _xpk_options(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    for name in recipe.xpk:
        try:
            xpk.require_undecided([name])
            xpk.require_option(name, recipe.versions.xpk)
        except UserError as e:
            yield LintFinding("xpk-option", "error", e.what, e.fix)
            continue
        if name not in xpk.OPTIONS:
            message = f"--{name} is no option of xpk until {xpk.NEWEST}; xpk {recipe.versions.xpk}, which the recipe asks for, may have it"
            yield LintFinding("xpk-option", "inconclusive", message, "check it with xpk workload create --help")


def _network(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    for command in recipe.launch.setup:
        if re.search(r"\bpip3?\b.*\binstall\b", command):
            message = f"each container runs `{command}` at its start, which needs a network that reaches PyPI or GitHub"
            yield LintFinding("network", "warning", message, "build it into the image where the nodes are private")
