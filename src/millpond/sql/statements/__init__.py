"""The statements, one file per verb; `registry.py` maps first words to modules."""
