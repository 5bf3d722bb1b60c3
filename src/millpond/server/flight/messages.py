"""The protobuf messages of Flight SQL that a server reads and writes.

They are built from one table instead of generated code: a message is its fields, a field is its name, number
and type; `?` marks a field that may be absent, `*` one that repeats.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from millpond.errors import InvalidError

PACKAGE = "arrow.flight.protocol.sql"
_KINDS = {"string": 9, "bytes": 12, "bool": 8, "int32": 5, "int64": 3, "uint32": 13}
_KEYS = "catalog?=1:string db_schema?=2:string table=3:string"

_MESSAGES = {
    "CommandGetSqlInfo": "info*=1:uint32",
    "CommandGetXdbcTypeInfo": "data_type?=1:int32",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "catalog?=1:string db_schema_filter_pattern?=2:string",
    "CommandGetTables": "catalog?=1:string db_schema_filter_pattern?=2:string "
    "table_name_filter_pattern?=3:string table_types*=4:string include_schema=5:bool",
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetExportedKeys": _KEYS,
    "CommandGetImportedKeys": _KEYS,
    "CommandGetCrossReference": "pk_catalog?=1:string pk_db_schema?=2:string pk_table=3:string "
    "fk_catalog?=4:string fk_db_schema?=5:string fk_table=6:string",
    "ActionCreatePreparedStatementRequest": "query=1:string transaction_id?=2:bytes",
    "ActionCreatePreparedStatementResult": "prepared_statement_handle=1:bytes dataset_schema=2:bytes "
    "parameter_schema=3:bytes",
    "ActionClosePreparedStatementRequest": "prepared_statement_handle=1:bytes",
    "CommandStatementQuery": "query=1:string transaction_id?=2:bytes",
    "TicketStatementQuery": "statement_handle=1:bytes",
    "CommandPreparedStatementQuery": "prepared_statement_handle=1:bytes",
    "CommandStatementUpdate": "query=1:string transaction_id?=2:bytes",
    "CommandPreparedStatementUpdate": "prepared_statement_handle=1:bytes",
    # In the standard both options are enums; an enum is an int32 on the wire.
    "TableDefinitionOptions": "if_not_exist=1:int32 if_exists=2:int32",
    "CommandStatementIngest": "table_definition_options=1:TableDefinitionOptions table=2:string "
    "schema?=3:string catalog?=4:string temporary=5:bool transaction_id?=6:bytes",
    "DoPutUpdateResult": "record_count=1:int64",
    "DoPutPreparedStatementResult": "prepared_statement_handle?=1:bytes",
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="millpond/flight_sql.proto", package=PACKAGE, syntax="proto3"
    )
    for name, text in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for part in text.split():
            label, _, rest = part.partition("=")
            number, _, kind = rest.partition(":")
            field: Any = message.field.add(name=label.rstrip("?*"), number=int(number))
            field.label = 3 if label.endswith("*") else 1
            if kind in _KINDS:
                field.type = _KINDS[kind]
            else:
                field.type, field.type_name = 11, f".{PACKAGE}.{kind}"
            if label.endswith("?"):
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())
CLASSES: dict[str, type[Message]] = {
    name: message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))
    for name in _MESSAGES
}


def message(name: str, **fields: Any) -> Any:
    """A message of that name.

    >>> message("DoPutUpdateResult", record_count=3).SerializeToString()
    b'\\x08\\x03'
    """
    return CLASSES[name](**fields)


def packed(name: str, **fields: Any) -> bytes:
    """A message inside an Any, as Flight SQL sends all of them."""
    wrapped = any_pb2.Any()
    wrapped.Pack(message(name, **fields))
    return bytes(wrapped.SerializeToString())


def unpacked(raw: bytes) -> tuple[str, Any]:
    """The name and the message inside an Any.

    >>> name, found = unpacked(packed("CommandStatementQuery", query="SELECT 1"))
    >>> name, found.query
    ('CommandStatementQuery', 'SELECT 1')
    """
    wrapped = any_pb2.Any()
    try:
        wrapped.ParseFromString(raw)
        name = wrapped.type_url.rpartition(".")[2]
        if wrapped.type_url.rpartition("/")[2] != f"{PACKAGE}.{name}" or name not in CLASSES:
            raise InvalidError("this command of Flight SQL is unknown", detail=wrapped.type_url[:200])
        found = CLASSES[name]()
        found.ParseFromString(wrapped.value)
    except DecodeError as error:
        raise InvalidError("this is no command of Flight SQL", detail=str(error)) from None
    return name, found
