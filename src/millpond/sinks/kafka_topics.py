"""The topics to which a sink writes: created if they are missing, and what a writer must know of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from millpond.errors import MillpondError, UnavailableError
from millpond.sources.kafka_client import ANSWER_S, Cluster, admin, library, refused

MESSAGE_BYTES = 1_048_588  # the limit of a message where no other is set
KNOWN_S = 15.0  # within which a new topic is known to the broker


@dataclass(frozen=True)
class TopicFacts:
    partitions: int
    message_bytes_max: int
    compacts: bool  # messages without a key are refused


def topic_facts(cluster: Cluster, topic: str) -> TopicFacts | None:
    """What is known of a topic; None if there is none of this name."""
    kafka = library()
    try:
        asked = admin(cluster).describe_topics(kafka.TopicCollection([topic]), request_timeout=ANSWER_S)
        partitions = len(asked[topic].result().partitions)
    except kafka.KafkaException as error:
        if error.args[0].code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise refused(cluster, error, topic) from None
    settings = _settings(cluster, topic)
    size = settings.get("max.message.bytes") or str(MESSAGE_BYTES)
    return TopicFacts(partitions, int(size), "compact" in (settings.get("cleanup.policy") or ""))


def _settings(cluster: Cluster, topic: str) -> Mapping[str, str | None]:
    """The settings of a topic; none if the user may not see them."""
    kafka = library()
    what = kafka.admin.ConfigResource(kafka.admin.ConfigResource.Type.TOPIC, topic)
    try:
        found = admin(cluster).describe_configs([what], request_timeout=ANSWER_S)[what].result()
    except kafka.KafkaException as error:
        if error.args[0].code() == kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return {}
        raise refused(cluster, error, topic) from None
    return {name: one.value for name, one in found.items()}


def made_topic(cluster: Cluster, topic: str, partitions: int, replicas: int, **config: str) -> TopicFacts:
    """The facts of a topic, which is created if there is none; -1 stands for the broker's own default."""
    found = topic_facts(cluster, topic)
    if found is not None:
        return found
    kafka = library()
    new = kafka.admin.NewTopic(topic, partitions, replicas, config=config)
    try:
        admin(cluster).create_topics([new], request_timeout=ANSWER_S)[topic].result()
    except kafka.KafkaException as error:
        if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
            raise _not_created(cluster, error, topic) from None
    end = time.monotonic() + KNOWN_S
    while (found := topic_facts(cluster, topic)) is None:
        if time.monotonic() > end:
            raise UnavailableError(f"topic {topic!r} was created, and the broker does not know it yet")
        time.sleep(0.05)
    return found


def _not_created(cluster: Cluster, error: Exception, topic: str) -> MillpondError:
    found = refused(cluster, error, topic)
    hint = "create it, or allow the user of the sink to create it"
    return type(found)(f"topic {topic!r} cannot be created", detail=found.detail, hint=hint)
