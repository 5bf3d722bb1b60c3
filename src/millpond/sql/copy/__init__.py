"""COPY: rows as text or CSV; the PostgreSQL protocol adds messages and binary rows."""
