"""Which settings a session gets: the user's, then ours for a cluster, then ours for all."""

from __future__ import annotations

import pytest

from millpond.engine.spark.session import CLUSTER_SETTINGS, settings_for, submitted_settings


def test_a_cluster_gets_short_timeouts_and_speculation() -> None:
    assert CLUSTER_SETTINGS.items() <= settings_for("spark://h:7077", {}).items()
    assert "spark.network.timeout" not in settings_for("local[2]", {})
    assert "spark.speculation" not in settings_for("local[2]", {})


def test_the_user_has_the_last_word() -> None:
    assert settings_for("yarn", {"spark.network.timeout": "90s"})["spark.network.timeout"] == "90s"


def test_what_was_submitted_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", "--master=spark://h:7077 --conf spark.speculation=false pyspark-shell"
    )
    assert submitted_settings() == {"spark.master": "spark://h:7077", "spark.speculation": "false"}
