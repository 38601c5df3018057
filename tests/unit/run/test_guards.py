"""Every guard of decide.py is needed: with any one of them removed, simulated lives fail; with the few that make no difference to them, an example."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType

import pytest
from hypothesis import is_hypothesis_test

from podwright.run import decide
from tests.unit.run import test_allocations, test_decide, test_journal
from tests.unit.run.cloud_simulation import random_life

SOURCE = Path(decide.__file__).read_text()
LIVES = 400
_UNFILLED = "cloud is AllocationState.FILLING and seen.unchanged_s >= traits.place_patience_s"
_LACKING = "record.lacking is not _missing(record, cloud)"
_HELD = "record.phase in (AllocationPhase.REQUESTED, AllocationPhase.READY)"
_NO_ANSWER = "missing and len(traits.zones) > 1 and _without_answer(record, traits, now)"
_REQUESTS = "record.calls >= LEAST_REQUESTS and now - record.since > traits.place_patience_s"
_UNHEARD = "exists and state.stop_wanted and (state.calls > 1) and (seen.unheard_s >= SILENT_STOP_S)"
BY_EXAMPLES = {
    # no simulated place leaves a request for so long without an answer that is known
    f"_start: if {_NO_ANSWER}",
    f"_start: missing in {_NO_ANSWER}",
    f"_start: len(traits.zones) > 1 in {_NO_ANSWER}",
    f"_start: _without_answer(record, traits, now) in {_NO_ANSWER}",
    f"_without_answer: record.calls >= LEAST_REQUESTS in {_REQUESTS}",
    f"_without_answer: now - record.since > traits.place_patience_s in {_REQUESTS}",
    # a few of 4,000 lives notice it; an example always does
    "_may_still_appear: process is Process.ABSENT in process is Process.ABSENT and submitted and (state.phase is not Phase.RUNNING)"
    " and (0 <= now - state.submitted < traits.start_grace_s)",
    # drive.py asks `outlived` too, and takes such an attempt for ended before it decides
    "next_action: not outlived(state, traits, seen.unchanged_s) in "
    "seen.process is Process.RUNNING and (not outlived(state, traits, seen.unchanged_s))",
    # no simulated place refuses for good; an example has some
    "_request: hopeless(state.capacity, traits.zones) in "
    "state.capacity.final or hopeless(state.capacity, traits.zones) or _out_of_patience(state, traits, now)",
    # no attempt is under way while there is another allocation, or none: nothing is asked about it
    "outlived: if record is None or not state.attempt_allocation",
    "outlived: not state.attempt_allocation in record is None or not state.attempt_allocation",
    "outlived: record.number != state.attempt_allocation in record.number != state.attempt_allocation or record.phase in _GIVEN_UP",
    # in a life there is no attempt on an allocation without a record; an example has one
    "outlived: record is None in record is None or not state.attempt_allocation",
    # an attempt that is not past has no process that changes its handle, or is adopted first
    "_alive: state.phase in (Phase.RUNNING, Phase.STOPPING) in "
    "seen.handle_changed and state.phase in (Phase.RUNNING, Phase.STOPPING)",
    # no life waits long enough after a refused deletion
    "_delete: choosing by record.undeleted, always 300.0",
    # every simulated target creates its machines
    "_start: if not traits.zones",
    # and none that exist without the run
    "_allocation_news: record.request.borrowed in gone or record.request.borrowed",
    # no simulated cloud tells of machines one by one, or grants a request and leaves it unfilled; the examples do
    "_allocation_news: record.phase is AllocationPhase.GONE in record is None or record.phase is AllocationPhase.GONE",
    "_allocation_news: if seen.allocation.charged not in (None, record.charged)",
    f"_allocation_news: if {_UNFILLED}",
    f"_allocation_news: cloud is AllocationState.FILLING in {_UNFILLED}",
    f"_allocation_news: seen.unchanged_s >= traits.place_patience_s in {_UNFILLED}",
    "_allocation_news: choosing by record.phase in (AllocationPhase.REQUESTED, AllocationPhase.READY), always Act.REFUSED",
    "_allocation_news: choosing by record.phase in (AllocationPhase.REQUESTED, AllocationPhase.READY), always None",
    f"_allocation_news: if {_LACKING} and {_HELD}",
    f"_allocation_news: {_LACKING} in {_LACKING} and {_HELD}",
    f"_allocation_news: {_HELD} in {_LACKING} and {_HELD}",
    "_missing: if cloud in (AllocationState.FILLING, AllocationState.REPAIRING)",
    "_missing: choosing by cloud is AllocationState.UNKNOWN, always record.lacking",
    "_missing: choosing by cloud is AllocationState.UNKNOWN, always None",
    # no simulated cloud has maintenance; the examples have
    "_allocation_news: if cloud is AllocationState.REPAIRING and _stays_away(state, seen, traits)",
    "_allocation_news: cloud is AllocationState.REPAIRING in "
    "cloud is AllocationState.REPAIRING and _stays_away(state, seen, traits)",
    "_allocation_news: _stays_away(state, seen, traits) in "
    "cloud is AllocationState.REPAIRING and _stays_away(state, seen, traits)",
    "_stays_away: if seen.unchanged_s < traits.repair_s",
    "_stays_away: if seen.process is Process.RUNNING",
    "_start: choosing by seen.allocation.state is AllocationState.REPAIRING, always Act.SUBMIT",
    # no simulated host is seen to be silent; the examples have some
    "_allocation_news: if cloud is not AllocationState.UNKNOWN and seen.unheard_s >= traits.silence_s",
    "_allocation_news: cloud is not AllocationState.UNKNOWN in "
    "cloud is not AllocationState.UNKNOWN and seen.unheard_s >= traits.silence_s",
    "_allocation_news: seen.unheard_s >= traits.silence_s in "
    "cloud is not AllocationState.UNKNOWN and seen.unheard_s >= traits.silence_s",
    "_delete_silent: seen.allocation.exists in "
    "seen.allocation.exists or seen.allocation.state is AllocationState.READY",
    "_delete_silent: _stops_unheard(state, seen) in "
    "there and state.calls >= MOST_UNANSWERED or _stops_unheard(state, seen)",
    "_stops_unheard: seen.allocation.exists in seen.allocation.exists or not away",
    "_stops_unheard: not away in seen.allocation.exists or not away",
    f"_stops_unheard: exists in {_UNHEARD}",
    f"_stops_unheard: state.stop_wanted in {_UNHEARD}",
    f"_stops_unheard: state.calls > 1 in {_UNHEARD}",
    f"_stops_unheard: seen.unheard_s >= SILENT_STOP_S in {_UNHEARD}",
    # before the first attempt nothing was submitted lately, and the one before is past when a stop comes
    "_may_still_appear: submitted in process is Process.ABSENT and submitted and (state.phase is not Phase.RUNNING)"
    " and (0 <= now - state.submitted < traits.start_grace_s)",
    # either one covers for the other: an attempt on an allocation has a record, and one on none is not asked about
    "machines_away: record is None in record is None or not state.attempt_allocation",
    "machines_away: not state.attempt_allocation in record is None or not state.attempt_allocation",
    # an attempt that ended has no process, whether or not it was released
    "past: state.released or machines_away(state) in "
    "state.attempt == state.ended_attempt and (state.released or machines_away(state))",
}
"""Guards whose removal no simulated life can notice, by function and text, and why"""
FUNCTIONS = {n: f for n, f in vars(decide).items() if isinstance(f, FunctionType) and f.__module__ == decide.__name__}


class Mutation(ast.NodeTransformer):
    """Applies the `wanted`-th removal of a guard, and counts them."""

    def __init__(self, wanted: int):
        self.wanted, self.count, self.what = wanted, 0, ""
        self.function = ""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.function = node.name
        return self.generic_visit(node)

    def _chosen(self, what: str) -> bool:
        self.count += 1
        if self.count - 1 != self.wanted:
            return False
        self.what = f"{self.function}: {what}"
        return True

    def visit_If(self, node: ast.If) -> ast.AST:
        if self._chosen(f"if {ast.unparse(node.test)}"):
            node.test = ast.Constant(False)
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        for kept in (node.body, node.orelse):
            if self._chosen(f"choosing by {ast.unparse(node.test)}, always {ast.unparse(kept)}"):
                return kept
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        for n, value in enumerate(list(node.values)):
            if self._chosen(f"{ast.unparse(value)} in {ast.unparse(node)}"):
                rest = node.values[:n] + node.values[n + 1 :]
                return rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(node.op, rest), node)
        return self.generic_visit(node)


def mutated(number: int) -> tuple[str, ast.Module]:
    tree = copy.deepcopy(ast.parse(SOURCE))
    mutation = Mutation(number)
    tree = ast.fix_missing_locations(mutation.visit(tree))
    return mutation.what, tree


def guards() -> list[str]:
    found = []
    while what := mutated(len(found))[0]:
        found.append(what)
    return found


def unit_tests() -> Iterator[Callable[[], None]]:
    """Those of decide, of the journal and of allocations that take no fixture."""
    for module in (test_allocations, test_journal, test_decide):
        for name, test in vars(module).items():
            if is_hypothesis_test(test):
                continue  # slow to shrink what it finds; the simulated lives search too
            if name.startswith("test_") and not inspect.signature(test).parameters:
                yield test
            elif (marks := getattr(test, "pytestmark", ())) and marks[0].name == "parametrize":
                names, rows = marks[0].args
                takes_fixtures = len(inspect.signature(test).parameters) > (
                    len(names) if isinstance(names, tuple) else 1
                )
                if not takes_fixtures:
                    yield from (partial(test, *(row if isinstance(names, tuple) else (row,))) for row in rows)


def examples() -> None:
    for test in unit_tests():
        test()


def simulated_lives(folder: Path, lives: int) -> None:
    for seed in range(lives):
        random_life(folder, seed)


def fails(check: Callable[[], None]) -> bool:
    try:
        check()
    except Exception:  # a removed guard may let anything happen
        return True
    return False


def removed_unnoticed(number: int, folder: Path, lives: int) -> str:
    """What the removed guard was if nothing fails without it, else ""."""
    what, tree = mutated(number)
    names = dict(vars(decide))
    exec(compile(tree, "decide.py", "exec"), names)
    before = {name: function.__code__ for name, function in FUNCTIONS.items()}
    try:
        for name, function in FUNCTIONS.items():
            function.__code__ = names[name].__code__
        return "" if fails(examples if what in BY_EXAMPLES else partial(simulated_lives, folder, lives)) else what
    finally:
        for name, function in FUNCTIONS.items():
            function.__code__ = before[name]


def test_every_exception_is_a_guard() -> None:
    assert set(guards()) >= BY_EXAMPLES


def test_nothing_fails_with_all_guards(tmp_path: Path) -> None:
    examples()
    simulated_lives(tmp_path, 100)


@pytest.mark.parametrize("number", range(0, len(guards()), 8))
def test_a_removed_guard_is_noticed(number: int, tmp_path: Path) -> None:
    assert not removed_unnoticed(number, tmp_path, LIVES)


@pytest.mark.long
def test_every_removed_guard_is_noticed(tmp_path: Path) -> None:
    assert not [what for n in range(len(guards())) if (what := removed_unnoticed(n, tmp_path, 10 * LIVES))]
