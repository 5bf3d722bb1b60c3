"""Millpond: a stateful stream processor in Python on Apache Spark.

import millpond
pond = millpond.open("my-pond")
"""

from millpond.errors import (
    ConflictError,
    DataError,
    InternalError,
    InvalidError,
    MillpondError,
    UnavailableError,
)
from millpond.pond import Pond, open

__version__ = "0.1.0"

__all__ = [
    "ConflictError",
    "DataError",
    "InternalError",
    "InvalidError",
    "MillpondError",
    "Pond",
    "UnavailableError",
    "__version__",
    "open",
]
