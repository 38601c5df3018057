"""Findings about a MaxText recipe and the script it is from, each with what to type. No cluster and no network is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.errors import UserError
from podwright.recipe.maxtext import lint_command, secret_values, xpk
from podwright.recipe.maxtext.imported import ImportedScript
from podwright.recipe.maxtext.lint_finding import LintFinding
from podwright.recipe.maxtext.schema import FROM_TARGET, VARIABLE, MaxTextRecipe

_UPLOAD = (
    (re.compile(r"gsutil\b"), re.compile(r"\bcp\b")),
    (re.compile(r"gcloud (?:alpha )?storage cp"), re.compile("")),
)
_UPLOAD_TO_ROOT = re.compile(r"\bcp\b"), re.compile(r"\s/logs/")
"""words that stand behind each other on a line"""


def of_recipe(recipe: MaxTextRecipe) -> list[LintFinding]:
    """What can be seen in a recipe alone."""
    return [
        *_training_script(recipe),
        *_secrets(recipe),
        *_placeholders(recipe),
        *_words_without_key(recipe),
        *_log_upload(recipe),
        *_xpk_options(recipe),
        *_other_topology(recipe),
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
    values = {
        "image": recipe.image,
        "launch.module": recipe.launch.module,
        "launch.base_config": recipe.launch.base_config,
        "xla_flags": " ".join(recipe.xla_flags),
        **{f"arguments.{key}": value for key, value in recipe.arguments.items()},
        **{f"environment.{key}": value for key, value in recipe.environment.items()},
        **{f"xpk.{key}": value for key, value in recipe.xpk.items()},
    }
    for key, value in values.items():
        names = [
            name for name in VARIABLE.findall(value) if name not in (*FROM_TARGET, "ARTIFACT_DIR", "TPU_WORKER_ID")
        ]
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
        plural = "are words" if len(words) > 1 else "is a word"
        message = f"{' '.join(words)} {plural} without =, and MaxText takes KEY=VALUE"
        fix = f"write {words[0]}={words[1] if len(words) > 1 else 'VALUE'} in the script and import again"
        yield LintFinding("argument", "error", message, fix)


def _log_upload(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    after = recipe.launch.after
    if not any(_follows(after, *words) for words in _UPLOAD):
        return
    if _follows(after, *_UPLOAD_TO_ROOT):
        yield LintFinding(
            "artifact-dir",
            "error",
            "the log is copied to /logs/, a folder of the container: the copy fails after training, and the run counts as failed",
            "write gs://BUCKET/FOLDER before /logs/ in launch.after",
        )
    elif "${ARTIFACT_DIR}" in after:
        yield LintFinding(
            "artifact-dir",
            "error",
            "ARTIFACT_DIR is empty in the script: the upload of the log to /logs/ fails after training, and the run counts as failed",
            "type ARTIFACT_DIR=gs://BUCKET/FOLDER when importing",
        )


def _follows(text: str, first: re.Pattern[str], second: re.Pattern[str]) -> bool:
    """Whether a line has the one and the other behind it."""
    return any((match := first.search(line)) and second.search(line, match.end()) for line in text.split("\n"))


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


def _other_topology(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    shape = recipe.topology.partition("-")[2]
    named = re.search(r"tpu7x-(\d+x\d+x\d+)", recipe.name)
    if named and recipe.topology.startswith("tpu7x-") and named[1] != shape:
        message = f"the name {recipe.name} says {named[1]}, and --device-type says {recipe.topology}"
        yield LintFinding(
            "topology", "warning", message, f"type topology=tpu7x-{named[1]}, if the arguments are for that"
        )


def _network(recipe: MaxTextRecipe) -> Iterator[LintFinding]:
    for command in recipe.launch.setup:
        if re.search(r"\bpip3?\b.*\binstall\b", command):
            message = f"each container runs `{command}` at its start, which needs a network that reaches PyPI or GitHub"
            yield LintFinding("network", "warning", message, "build it into the image where the nodes are private")
