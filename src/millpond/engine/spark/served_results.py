"""Reads results that the driver's JVM serves on a socket: the frames of a job's last level.

Law: a job leaves nothing behind in the driver's JVM.

With unix sockets every result has its own socket, a file that Spark deletes once it is read.  Spark also
registers the file with `File.deleteOnExit`, and Java stores the path until it exits: 150 bytes per job, which
fill the heap after some ten days of epochs.  So a path whose file is gone is removed from Java's list, under
the lock that Java itself uses for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from millpond.errors import UnavailableError

_LENGTH = struct.Struct(">i")


class Served:
    """Reads what the JVM of one gateway serves."""

    def __init__(self, gateway: Any) -> None:
        self._at_exit = paths_at_exit(gateway)

    def read(self, served: Any) -> list[bytes]:
        """The frames at (place, secret), the result of Spark's `collectAndServe`."""
        from pyspark.util import local_connect_and_auth

        path, secret = served[0], served[1]
        stream, socket = local_connect_and_auth(path, secret)
        try:
            socket.settimeout(None)  # a job may take any time
            found = list(frames(stream))
        finally:
            stream.close()
            socket.close()
        if self._at_exit is not None and isinstance(path, str):  # an integer is a TCP port
            self._at_exit.discard(path)
        return found


def frames(stream: Any) -> Iterator[bytes]:
    """The frames that the JVM serves; unlike in a worker, they end with the end of the stream."""
    while head := stream.read(_LENGTH.size):
        (length,) = _LENGTH.unpack(head)
        frame = stream.read(length)
        if len(frame) < length:
            raise UnavailableError(
                "the connection to spark was lost", detail=f"{len(frame)} bytes of a frame of {length}"
            )
        yield frame


def paths_at_exit(gateway: Any) -> Any:
    """The set of files that this JVM deletes when it exits, safe to modify.

    None in a JVM that does not open `java.io` and `java.util` to us, as Spark's own scripts do: there the
    paths remain.
    """
    from py4j.protocol import Py4JJavaError

    known = gateway.jvm.java.lang.Class
    try:
        hook = known.forName("java.io.DeleteOnExitHook")
        field = hook.getDeclaredField("files")
        field.setAccessible(True)
        (make,) = (
            one
            for one in known.forName("java.util.Collections$SynchronizedSet").getDeclaredConstructors()
            if one.getParameterCount() == 2
        )
        make.setAccessible(True)
        arguments = gateway.new_array(gateway.jvm.java.lang.Object, 2)
        # `File.deleteOnExit` locks the class that holds the set; so does this synchronized view of the set.
        arguments[0], arguments[1] = field.get(None), hook
        return make.newInstance(arguments)
    except Py4JJavaError:
        return None
