"""The engine on Apache Spark: session, workers, one job per epoch."""
