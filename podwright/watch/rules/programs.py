"""The recipe, its files and the packages that it needs."""

from __future__ import annotations

from podwright.rundir import Ending
from podwright.watch.rules.rule import rule

RULES = (
    rule(
        "missing-keys",
        r"Missing key\(s\) in state_dict|Unexpected key\(s\) in state_dict|size mismatch for \S+: copying a param",
        Ending.BAD_INPUT,
        "the checkpoint is of another model than the recipe's",
        "give the checkpoint that belongs to these dimensions, or the dimensions of that checkpoint",
    ),
    rule(
        "no-module",
        r"ModuleNotFoundError: No module named",
        Ending.BAD_INPUT,
        "a Python package is missing where this ran",
        "{packages}",
    ),
    rule(
        "no-compiler",
        r"No working C\+\+ compiler found|Failed to find C compiler",
        Ending.BAD_INPUT,
        "torch.compile found no compiler where this ran",
        "{compiler}",
    ),
    rule(
        "not-finite",
        r"^NOT_FINITE|\b(loss|grad_norm|gradients?)\b\W+(is |are |= ?|: ?)?([Nn]a[Nn]|[Ii]nf|not finite)\b(?!.*([Ss]kip|scale))",
        Ending.NOT_FINITE,
        "the loss or its gradient is NaN or infinite",
        "start again with {not_finite}",
    ),
    rule(
        "out-of-data",
        r"^StopIteration\b|\(StopIteration\)|failed with <class 'StopIteration'>|[Rr]an out of data\b|generator raised StopIteration",
        Ending.OUT_OF_DATA,
        "the training data ended before the last step",
        "give more data, or {fewer_steps}; podwright data count says how much a source holds",
    ),
    rule(
        "optimizer-option",
        r"unexpected keyword argument '(?P<option>consistent_rms|weight_decay)'|(?P<key>\w*weight_decay)\b.{0,80}not in valid fields",
        Ending.BAD_INPUT,
        "the optimizer does not know an option that it was given: the installed optax is of another version, or Muon's weight decay "
        "has a name of its own in this program",
        "install the version of optax that the program names, or give the option under the program's name for it",
    ),
)
