"""A baton: several threads, of which exactly one runs, chosen by a seeded die.

Every storage call of every actor is a place where another may go on, so a
seed is one interleaving, the same on every machine.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable


class Killed(BaseException):
    """The process of this actor died at this very call."""


class Actor:
    def __init__(self, name: str, body: Callable[[], None]) -> None:
        self.name = name
        self.body = body
        self.doomed = False  # dies at its next storage call
        self.done = False
        self.error: BaseException | None = None
        self.go = threading.Event()
        self.back = threading.Event()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        self.go.wait()
        self.go.clear()
        try:
            self.body()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self.back.set()


class Baton:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.actors: list[Actor] = []
        self._current: Actor | None = None
        self.steps = 0

    def spawn(self, name: str, body: Callable[[], None]) -> Actor:
        actor = Actor(name, body)
        self.actors.append(actor)
        actor.thread.start()
        return actor

    def pause(self) -> None:
        """Called by the running actor: give the baton back, wait for it, perhaps die."""
        actor = self._current
        if actor is None:
            return
        if actor.doomed:
            raise Killed
        actor.back.set()
        actor.go.wait()
        actor.go.clear()
        if actor.doomed:
            raise Killed

    def step(self) -> bool:
        """Let one living actor go on until its next pause; False when none is left."""
        living = [a for a in self.actors if not a.done]
        if not living:
            return False
        actor = self.rng.choice(living)
        self._current = actor
        self.steps += 1
        actor.go.set()
        actor.back.wait()
        actor.back.clear()
        self._current = None
        return True

    def finish(self) -> None:
        """Kill whoever is left, so that no thread outlives its seed."""
        for actor in self.actors:
            while not actor.done:
                actor.doomed = True
                self._current = actor
                actor.go.set()
                actor.back.wait()
                actor.back.clear()
        self._current = None
