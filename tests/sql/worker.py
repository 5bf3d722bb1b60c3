"""What another process does with a pond: statements, one after the other, some of them many times.

`EXPECT 3 statement` asks how many rows it touched.
"""

from __future__ import annotations

import sys

import millpond


def main(path: str, times: int, *statements: str) -> None:
    with millpond.open(path, engine="inline") as pond:
        for _ in range(times):
            for sql in statements:
                if sql.startswith("EXPECT "):
                    _, count, asked = sql.split(" ", 2)
                    assert pond.sql(asked).rowcount == int(count), asked
                else:
                    pond.sql(sql)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
