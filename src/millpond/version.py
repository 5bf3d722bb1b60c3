"""The version of Millpond; written into every catalog, so that an older one can say what is needed."""

__version__ = "0.1.0"
