"""Previews of tables are bounded, in one line a row, and escaped in HTML."""

from __future__ import annotations

from millpond.table_preview import CHARACTERS_MAX, html_facts, html_table, shown_value, text_table


def test_text_without_rows() -> None:
    assert text_table(["a", "bc"], [], 0) == " a | bc\n---+----\n(0 rows)"


def test_a_value_is_one_bounded_line() -> None:
    assert shown_value("a\tb\x1b[31m") == "a\\tb\\x1b[31m"
    assert len(shown_value("x" * 10_000)) == CHARACTERS_MAX


def test_html_is_escaped_everywhere() -> None:
    attack = "<script>alert('x')</script>"
    shown = html_table([attack], [attack], [(attack,)], 1) + html_facts(attack, [(attack, attack)])
    assert "<script" not in shown and "'" not in shown
    assert shown.count("&lt;script&gt;") == 6
