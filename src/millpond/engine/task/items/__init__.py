"""Items of a task plan: one frozen class per way to run steps."""
