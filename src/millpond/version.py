"""The version of Millpond; stored in every catalog, so that an older version can say which one is needed."""

__version__ = "0.1.0"
