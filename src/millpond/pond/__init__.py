"""The public API of a pond: `open` and `Pond`.

| file | what it holds |
|---|---|
| `api.py` | `open`, and every method of `Pond` with what it promises; the files below do the work |
| `opening.py`, `closing.py` | checking the arguments of `open`; releasing everything |
| `location.py`, `components.py` | where a pond is, and what it is made of while it is open |
| `definitions.py` | streams, tables and functions of Python become steps |
| `explaining.py` | the plan as text or a diagram |
| `execution.py`, `boot.py`, `listeners.py` | running: who runs the epochs, how they start, who is notified |
| `open_ponds.py`, `status.py` | which `Pond` of this process has a folder open; how a pond is doing |
| `autoscaler.py`, `load_shedding.py` | parallelism that follows the load; rows shed, bounds of estimates |
| `progress.py` | how far event time and a backfill have come |
| `program.py` | changing the plan of a running pond |
| `inbox_client.py`, `rows.py` | sending rows and commands to the inbox, and waiting for them |
| `commands.py`, `watermark_promises.py` | rescale, settings, savepoints and others: checked, then sent |
| `rollback.py`, `forking.py`, `replaying.py` | the time machine |
| `state_migration.py` | migrate and bootstrap: state rewritten from rows of the user |
| `sessions.py`, `sql_host.py`, `transaction.py` | SQL sessions, what they see, transactions from Python |
| `other_processes.py` | what processes that have one pond open must know of each other |
| `harness_access.py` | what the test harness does to a pond and users cannot |

Reading is `serve/reader.py`, backups are `serve/backup.py`, statements are `sql/session.py`.
"""

from millpond.pond.api import Pond, open, restore
from millpond.pond.execution import EngineName

__all__ = ["EngineName", "Pond", "open", "restore"]
