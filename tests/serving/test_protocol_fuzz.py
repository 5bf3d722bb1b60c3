"""Random and mutated messages in every state: the server neither crashes nor hangs nor leaks a connection."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.server.server import Server
from tests.sampling import first

SEEDS = range(40)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path: Path = tmp_path_factory.mktemp("fuzz") / "pond"
    with millpond.open(path, engine="inline") as pond:
        pond.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 2); FLUSH")
        with pond.serve(pg_port=0, message_bytes_max=1 << 20, login_ms_max=2000) as found:
            yield found


def port_of(server: Server) -> int:
    return int(server.urls["pg"].rpartition(":")[2].partition("/")[0])


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def startup() -> bytes:
    body = struct.pack("!i", 196608) + b"user\0ann\0database\0pond\0\0"
    return struct.pack("!i", len(body) + 4) + body


def well_formed(chance: random.Random) -> bytes:
    texts = [b"SELECT 1", b"SELECT * FROM t", b"", b"SELEC", b"BEGIN", b"COMMIT", b"SELECT $1", b"FETCH c",
             b"COPY t FROM STDIN", b"COPY t TO STDOUT", b"SHOW ALL", b"DISCARD ALL", b"INSERT INTO t VALUES (2, 3)",
             b"DECLARE c CURSOR FOR SELECT 1", b"((((((((((", b"SELECT pg_catalog.version()"]  # fmt: skip
    name = chance.choice([b"", b"", b"s", b"p"])
    match chance.randrange(12):
        case 0 | 1:
            return message(b"Q", chance.choice(texts) + b"\0")
        case 2 | 3:
            return message(b"P", name + b"\0" + chance.choice(texts) + b"\0\0\0")
        case 4 | 5:
            return message(b"B", name + b"\0" + name + b"\0\0\0\0\0\0\0")
        case 6:
            return message(b"D", chance.choice([b"S", b"P"]) + name + b"\0")
        case 7:
            return message(b"E", name + b"\0" + struct.pack("!i", chance.choice([0, 1, -1])))
        case 8:
            return message(b"C", chance.choice([b"S", b"P"]) + name + b"\0")
        case 9:
            return message(
                chance.choice([b"d", b"c", b"f", b"F", b"p"]), chance.choice([b"", b"x\0", b"1\t2\n"])
            )
        case 10:
            return message(b"H", b"")
    return message(b"S", b"")


def mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.randrange(len(changed) + 1)] if chance.random() < 0.3 else changed)


def conversation(chance: random.Random) -> bytes:
    first = startup() if chance.random() < 0.8 else mutated(startup(), chance)
    parts = [well_formed(chance) for _ in range(chance.randrange(1, 12))]
    if chance.random() < 0.7:
        place = chance.randrange(len(parts))
        parts[place] = mutated(parts[place], chance)
    if chance.random() < 0.2:
        parts.append(bytes(chance.randrange(256) for _ in range(chance.randrange(200))))
    return first + b"".join(parts)


def healthy(server: Server) -> bool:
    psycopg: Any = pytest.importorskip("psycopg")
    with psycopg.connect(f"postgresql://ann@127.0.0.1:{port_of(server)}/pond", autocommit=True) as con:
        return bool(con.execute("SELECT n FROM t WHERE id = 1").fetchone() is not None)


@pytest.mark.parametrize("seed", first(2, SEEDS))
def test_random_conversations(server: Server, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        with socket.create_connection(("127.0.0.1", port_of(server)), timeout=20) as con:
            con.sendall(conversation(chance))
            if chance.random() < 0.8:
                con.shutdown(socket.SHUT_WR)
                while con.recv(65536):
                    pass
    assert healthy(server)
    listener: Any = server._listeners[0]
    until = time.monotonic() + 20
    while listener._connections and time.monotonic() < until:
        time.sleep(0.05)
    assert not listener._connections
