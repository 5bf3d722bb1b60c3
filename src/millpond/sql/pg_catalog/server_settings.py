"""PostgreSQL's settings that its clients and scripts set and read, with the values that Millpond has."""

from __future__ import annotations

from millpond.sql.pg_catalog.server_version import SERVER_VERSION
from millpond.version import __version__

DEFAULTS: dict[str, str] = {
    "application_name": "",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "client_min_messages": "notice",
    "DateStyle": "ISO, MDY",
    "array_nulls": "on",
    "block_size": "8192",
    "check_function_bodies": "on",
    "default_table_access_method": "heap",
    "default_tablespace": "",
    "default_text_search_config": "pg_catalog.simple",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "off",
    "enable_seqscan": "on",
    "escape_string_warning": "on",
    "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "in_hot_standby": "off",
    "integer_datetimes": "on",
    "IntervalStyle": "postgres",
    "is_superuser": "on",
    "jit": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "lock_timeout": "0",
    "max_connections": "1000",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "max_prepared_transactions": "0",
    "millpond_version": __version__,
    "read_your_writes": "on",
    "row_security": "on",
    "quote_all_identifiers": "off",
    "search_path": '"$user", public',
    "server_encoding": "UTF8",
    "server_version": SERVER_VERSION,
    "server_version_num": "150008",
    "session_authorization": "",
    "ssl": "off",
    "standard_conforming_strings": "on",
    "temp_tablespaces": "",
    "wal_level": "replica",
    "work_mem": "4096",
    "xmlbinary": "base64",
    "xmloption": "content",
    "statement_timeout": "0",
    "synchronize_seqscans": "on",
    "synchronous_commit": "on",
    "TimeZone": "UTC",
    "transaction_isolation": "serializable",
    "transaction_read_only": "off",
}
_SPELLED = {name.lower(): name for name in DEFAULTS}
_SAME = {"on": ("true", "yes", "1"), "off": ("false", "no", "0")}
# These cannot be changed.
FIXED = ("block_size", "max_prepared_transactions", "ssl", "wal_level",
         "in_hot_standby", "integer_datetimes", "is_superuser", "lc_collate", "lc_ctype", "max_connections",
         "max_identifier_length", "max_index_keys", "millpond_version", "server_encoding", "server_version",
         "server_version_num", "session_authorization")  # fmt: skip
# These change nothing that a statement of Millpond means.
QUIET = ("application_name", "client_min_messages", "enable_seqscan", "extra_float_digits",
         "lc_messages", "row_security", "synchronize_seqscans", "synchronous_commit",
         "default_transaction_isolation", "default_transaction_read_only", "transaction_isolation",
         "transaction_read_only", "jit", "lock_timeout", "check_function_bodies",
         "default_table_access_method", "default_tablespace", "array_nulls",
         "escape_string_warning", "quote_all_identifiers", "xmloption", "xmlbinary",
         "default_text_search_config", "temp_tablespaces")  # fmt: skip
_UTF8 = ("utf8", "utf-8", "unicode")


def setting_named(name: str) -> str | None:
    """The setting as PostgreSQL spells it; None if it has none of this name.

    >>> setting_named("DATESTYLE"), setting_named("dates")
    ('DateStyle', None)
    """
    return _SPELLED.get(name.lower())


def is_default(name: str, value: str) -> bool:
    """Does a value ask for what Millpond does anyway?

    >>> is_default("DateStyle", "iso"), is_default("DateStyle", "ISO, DMY"), is_default("jit", "FALSE")
    (True, False, True)
    """
    asked = value.strip().strip("'\"").lower()
    if name == "DateStyle":
        return set(asked.replace(",", " ").split()) <= {"iso", "mdy"}
    if name == "client_encoding":
        return asked.replace("_", "") in _UTF8
    return asked in (DEFAULTS.get(name, "").lower(), *_SAME.get(DEFAULTS.get(name, ""), ()))
