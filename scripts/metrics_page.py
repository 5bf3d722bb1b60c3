"""Writes the table of metrics into docs/serving/metrics.md."""

from __future__ import annotations

from pathlib import Path

from millpond.server.metrics.registry import markdown

PAGE = Path(__file__).parents[1] / "docs" / "serving" / "metrics.md"
BEGIN, END = "<!-- metrics: begin -->\n", "<!-- metrics: end -->\n"


def main() -> None:
    text = PAGE.read_text()
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    PAGE.write_text(before + markdown() + after)


if __name__ == "__main__":
    main()
