"""Which typed KEY=VALUE a script has no use for."""

from podwright.recipe.maxtext import given_values


def test_a_name_is_used_where_the_script_sets_it_and_not_where_it_stands_in_a_comment_or_in_quotes() -> None:
    text = "FIRST=1\n# SECOND=2\necho 'x\nTHIRD=3'\nexport FOURTH=4; FIFTH=$(\nSIXTH=6 true)\n"
    names = ("FIRST", "SECOND", "THIRD", "FOURTH", "FIFTH", "SIXTH")
    assert given_values.unused([text], dict.fromkeys(names, "0")) == ["SECOND", "THIRD"]
