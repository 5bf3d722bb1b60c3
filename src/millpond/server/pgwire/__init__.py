"""The PostgreSQL protocol, version 3."""
