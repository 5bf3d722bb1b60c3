"""The public face of a pond: `open` and `Pond`.

| file | what a person looks for there |
|---|---|
| `face.py` | `open`, and every method of `Pond` with what it promises; the rooms below do it |
| `places.py`, `parts.py` | where a pond is, and what it is made of while it is open |
| `definitions.py` | streams, tables and functions of Python become steps |
| `driver.py`, `boot.py`, `watch.py` | running: who drives the chain, how it begins, who is told |
| `holders.py`, `status.py` | which `Pond` of this process holds a place; how a pond is doing |
| `program.py` | changing the plan of a pond that runs |
| `door.py`, `rows.py` | the inbox: rows and commands, and waiting for their turn |
| `rewriting.py` | state that is written anew: migrate and bootstrap |

Reading is `serve/reader.py`, backups are `serve/backup.py`, statements are `sql/session.py`.
"""

from millpond.pond.driver import EngineName
from millpond.pond.face import Pond, open, restore

__all__ = ["EngineName", "Pond", "open", "restore"]
