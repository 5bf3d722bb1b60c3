"""What each statement does, a file for each verb; `table.py` says which is for which."""
