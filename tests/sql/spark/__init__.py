"""The dialect `spark` against Spark itself: its registry of functions, its own examples, random expressions."""
