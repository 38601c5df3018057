"""The literals that a log is searched for first: every text that a pattern matches has one of them."""

import random
import re
from re import _constants as op
from re import _parser as parser

import pytest

from podwright.watch import scan
from podwright.watch.anchors import ORDINARY, anchors, prefilter, probes
from podwright.watch.rules import RULES

CHARACTERS = "aZ9 .:/-_()\"'"


def drawn(items, draw: random.Random) -> str:
    """A text that the items of a parsed pattern match, where they look at nothing around it."""
    return "".join(drawn_item(code, argument, draw) for code, argument in items)


def drawn_item(code, argument, draw: random.Random) -> str:
    if code is op.LITERAL:
        return chr(argument)
    if code is op.SUBPATTERN:
        return drawn(argument[3], draw)
    if code is op.BRANCH:
        return drawn(draw.choice(argument[1]), draw)
    if code in (op.MAX_REPEAT, op.MIN_REPEAT):
        least, most, inner = argument
        return "".join(drawn(inner, draw) for _ in range(draw.randint(least, min(most, least + 3))))
    if code in (op.ANY, op.NOT_LITERAL):
        return draw.choice(CHARACTERS)
    if code is op.IN:
        pattern = re.compile(parser_text(argument))
        return draw.choice([c for c in map(chr, range(32, 127)) if pattern.match(c)])
    assert code in (op.AT, op.ASSERT, op.ASSERT_NOT), code
    return ""


def parser_text(members) -> str:
    """A class of characters as it is written in a pattern."""
    text = ""
    for code, argument in members:
        if code is op.NEGATE:
            text += "^"
        elif code is op.LITERAL:
            text += re.escape(chr(argument))
        elif code is op.RANGE:
            text += f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
        else:
            names = {op.CATEGORY_DIGIT: r"\d", op.CATEGORY_SPACE: r"\s", op.CATEGORY_WORD: r"\w"}
            names |= {op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_NOT_WORD: r"\W"}
            text += names[argument]
    return f"[{text}]"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_text_that_a_rule_matches_has_one_of_its_anchors(rule) -> None:
    literals, draw, matched = anchors(rule.pattern), random.Random(rule.name), 0
    search = prefilter(probes(literals))
    for _ in range(400):
        text = f"x {drawn(parser.parse(rule.pattern.pattern), draw)} y"
        for candidate in (text, text[2:-2]):
            if match := rule.pattern.search(candidate):
                matched += 1
                assert any(literal in match[0] for literal in literals), candidate
                assert search.search(match[0].encode()), candidate
    assert matched > 100


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_anchor_is_in_an_ordinary_log(rule) -> None:
    assert not any(literal in ORDINARY for literal in anchors(rule.pattern))


def test_every_text_that_shows_progress_has_one_of_its_words() -> None:
    draw = random.Random(0)
    for _ in range(2000):
        text = drawn(parser.parse(scan._PROGRESS.pattern), draw)
        if match := scan._PROGRESS.search(text):
            assert any(word in match[0] for word in scan._PROGRESS_WORDS), text


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("abcdef", {"abcdef"}),
        (r"^abcdef\d+$", {"abcdef"}),
        ("Xab|Ycd", {"Xab", "Ycd"}),
        (r"Zz(ab|cd)Yy", {"ZzabYy", "ZzcdYy"}),
        (r"[Oo]ut of Memory", {"Out of Memory", "out of Memory"}),
        (r"colou?r is Wrong", {"color is Wrong", "colour is Wrong"}),
        (r"short\S*much longer text", {"much longer text"}),
        (r"much longer text\S*short", {"much longer text"}),
        (r"(?:Qwerty)+", {"Qwerty"}),
        (r"(?:Qwerty)*Zz", {"Zz"}),
        (r"(?=Qwerty)Zz", {"Zz"}),
        (r"Zz(?!Qwerty)", {"Zz"}),
        (r"Qq[a-z]Zzz", {"Zzz"}),
        (r"Qq[0-3]", {"Qq0", "Qq1", "Qq2", "Qq3"}),
        (r"Qqq[^a]", {"Qqq"}),
        (r"Qqq(\d|ab)", {"Qqq"}),
        (r"(Qqq\d|Zzz\d)", {"Qqq", "Zzz"}),
        (r"loss\W+Qqq", {"Qqq"}),
    ],
)
def test_anchors_of_a_pattern(pattern: str, expected: set[str]) -> None:
    assert anchors(re.compile(pattern)) == expected


@pytest.mark.parametrize("pattern", [r"\d+", "loss", "step", "Qqq|loss", r"(Qqq\d|\d)", "Qqq|", "(Qqq)?"])
def test_a_pattern_without_anchors_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="no literal text"):
        anchors(re.compile(pattern))


def test_a_pattern_that_ignores_case_is_refused() -> None:
    with pytest.raises(ValueError, match="ignores case"):
        anchors(re.compile("(?i)Qwerty"))


def test_a_prefilter_of_nothing_matches_nothing() -> None:
    assert not prefilter([]).search(b"anything")


def test_a_probe_begins_with_a_rare_byte_and_is_five_bytes_long_at_least() -> None:
    assert probes(["seconds Zebra crossing"]) == {b"Zebra crossing": {"seconds Zebra crossing"}}
    assert probes(["seconds Zebra"]) == {b"Zebra": {"seconds Zebra"}}
    assert probes(["seconds Zebr"]) == {b"ds Zebr": {"seconds Zebr"}}
    assert probes(["Zeb"]) == {b"Zeb": {"Zeb"}}


def test_a_probe_that_is_the_beginning_of_another_stands_for_both() -> None:
    assert probes(["Zebra crossing", "Zebra", "Zoo"]) == {b"Zebra": {"Zebra", "Zebra crossing"}, b"Zoo": {"Zoo"}}


def test_first_bytes_that_are_searched_for_anyway_are_preferred() -> None:
    assert len({part[:1] for part in probes(["XQQQQQ", "QXXXXX"])}) == 1
    assert {part[:1] for part in probes(["Zeb", "QZZZZZ"])} == {b"Z"}
    assert {part[:1] for part in probes(["QaaaaaK", "KaaaaaX", "aaaaXaaaa"])} == {b"Q", b"K", b"X"}
