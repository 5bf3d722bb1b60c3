"""Compares PostgreSQL's functions with Millpond's, and writes docs/functions.md.

python scripts/postgres_functions.py record    ask a real PostgreSQL, and store its answers
python scripts/postgres_functions.py           compare, and write the page
python scripts/postgres_functions.py page      write the page from the last comparison
python scripts/postgres_functions.py show math print what differs in a family
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.functions.comparison import differences
from tests.functions.ours import Millpond
from tests.functions.page import PAGE, measured, read_statuses, rendered, write_statuses
from tests.functions.recorded import load, record
from tests.sql.fuzz.postgres import Server


def main(what: str = "", family: str = "") -> None:
    if what == "record":
        server = Server()
        try:
            record(server.con)
        finally:
            server.close()
    elif what == "show":
        millpond = Millpond()
        for one, answers in load()[family]:
            for answer, told in differences(millpond, answers):
                print(f"{one.signature}\n    {answer.query}\n    {told}")
    else:
        if what != "page":
            write_statuses(measured())
        PAGE.write_text(rendered(read_statuses()), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
