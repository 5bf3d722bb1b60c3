"""Asks a Kafka cluster about a topic: its id, its partitions and the offsets that can be read.

Law: the end of a partition is its last stable offset, so admitted messages are final: no open transaction can
change them.  A cluster that does not answer raises UnavailableError and is asked again.  So does one that
does not know an offset: librdkafka's special offsets are negative, and never a position in a partition.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millpond.errors import DataError, InvalidError, MillpondError, UnavailableError
from millpond.masking import MASK, VALUE_MIN
from millpond.secret_references import resolved
from millpond.sources.unavailable import away

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ANSWER_S = 5.0  # the timeout of one request
END = -1  # the end of a partition in librdkafka; other special offsets are -2, -1000 and -1001
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # the id of a topic that the broker does not know (yet)
Client = tuple[tuple[str, str], ...]  # further settings of librdkafka


@dataclass(frozen=True)
class Cluster:
    """The address of a cluster and the settings of the client."""

    brokers: str
    client: Client = field(default=(), repr=False)

    def masked(self, text: str) -> str:
        """A text of the library with the values of settings masked, which it may repeat."""
        for name, value in self.client:
            plain = ("security.protocol", "sasl.mechanism", "sasl.mechanisms")
            if len(value) >= VALUE_MIN and name not in plain:
                text = text.replace(value, MASK)
        return text

    def settings(self, **ours: Any) -> dict[str, Any]:
        client = {name: resolved(value) for name, value in self.client}
        return {**client, "bootstrap.servers": self.brokers, "log_level": 0, **ours}


@dataclass(frozen=True)
class Topic:
    id: str  # a topic that is deleted and created again has another id
    ends: Mapping[
        int, tuple[int, int]
    ]  # by partition: the first available offset, and the one after the last


def library() -> Any:
    """Import the client library, which only Kafka sources need."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise InvalidError(
            "the Kafka client is not installed", detail=str(error), hint="pip install 'millpond[kafka]'"
        ) from error
    return confluent_kafka


_admins: dict[tuple[int, Cluster], tuple[Mapping[str, Any], AdminClient]] = {}  # with their settings
_said: dict[tuple[int, Cluster], str] = {}  # the last connection error that the library reported


def admin(cluster: Cluster) -> AdminClient:
    """The client of this process that asks and changes a cluster; another one if a secret has changed."""
    key = os.getpid(), cluster  # a connection does not outlive a fork
    settings = cluster.settings()
    found = _admins.get(key)
    if found is None or found[0] != settings:
        kafka = library()
        try:
            made = kafka.admin.AdminClient({**settings, "error_cb": error_callback(cluster)})
        except kafka.KafkaException as error:
            raise refused(cluster, error) from None
        found = _admins[key] = settings, made
    return found[1]


def error_callback(cluster: Cluster) -> Callable[[Any], None]:
    """Callback for connection errors: the request itself fails only with 'timed out'."""
    key = os.getpid(), cluster

    def error_cb(error: Any) -> None:
        if "failed: " in error.str():
            _said[key] = error.str()

    return error_cb


def _reason(cluster: Cluster, otherwise: str) -> str:
    """The reason why a cluster does not answer, with its address.

    >>> _said[os.getpid(), Cluster("a:1")] = "a:1/bootstrap: Connect failed: Connection refused (after 0ms)"
    >>> _reason(Cluster("a:1"), "Local: Timed out"), _reason(Cluster("b:1"), "Local: Timed out")
    ('connection refused (a:1)', 'local: Timed out (b:1)')
    """
    key = os.getpid(), cluster
    if key in _admins:
        with contextlib.suppress(library().KafkaException, SystemError):  # the reason is known without it
            _admins[key][1].poll(0)  # runs the callbacks
    said = _said.get(key, otherwise).rpartition("failed: ")[2].partition(" (after ")[0]
    return f"{said[:1].lower()}{said[1:]} ({cluster.brokers})"


def look(cluster: Cluster, topic: str) -> Topic:
    """The topic as it is now."""
    kafka = library()
    try:
        asked = admin(cluster).describe_topics(kafka.TopicCollection([topic]), request_timeout=ANSWER_S)
        found = asked[topic].result()
        partitions = sorted(p.id for p in found.partitions)
        spec = kafka.admin.OffsetSpec
        asked_low, asked_high = (
            _ask_offsets(cluster, topic, partitions, kind) for kind in (spec.earliest(), spec.latest())
        )
        low, high = _offsets(asked_low), _offsets(asked_high)
    except kafka.KafkaException as error:
        raise refused(cluster, error, topic) from None
    _said.pop((os.getpid(), cluster), None)  # it answers
    for p in partitions:
        if low[p] < 0 or high[p] < 0:
            raise unknown_offset(cluster, topic, p, min(low[p], high[p]))
    return Topic(str(found.topic_id), {p: (low[p], high[p]) for p in partitions})


def topic_names(cluster: Cluster) -> list[str]:
    """The names of all topics that the user of the cluster may see."""
    kafka = library()
    try:
        return sorted(admin(cluster).list_topics(timeout=ANSWER_S).topics)
    except kafka.KafkaException as error:
        raise refused(cluster, error) from None


def offsets_since(cluster: Cluster, topic: Topic, name: str, at_ms: int) -> dict[int, int]:
    """By partition: the first offset at or after a time, or the end if there is none."""
    kafka = library()
    spec = kafka.admin.OffsetSpec.for_timestamp(at_ms)
    try:
        found = _offsets(_ask_offsets(cluster, name, [*topic.ends], spec))
    except kafka.KafkaException as error:
        raise refused(cluster, error, name) from None
    for p, at in found.items():
        if at < 0 and at != END:  # END: nothing was written since
            raise unknown_offset(cluster, name, p, at)
    return {p: topic.ends[p][1] if at == END else at for p, at in found.items()}


def compacts(cluster: Cluster, topic: str) -> bool:
    """Is the topic compacted, so that messages disappear while later ones stay?"""
    kafka = library()
    what = kafka.admin.ConfigResource(kafka.admin.ConfigResource.Type.TOPIC, topic)
    try:
        found = admin(cluster).describe_configs([what], request_timeout=ANSWER_S)[what].result()
    except kafka.KafkaException as error:
        raise refused(cluster, error, topic) from None
    return "compact" in (found["cleanup.policy"].value or "")


def _ask_offsets(cluster: Cluster, topic: str, partitions: Sequence[int], spec: Any) -> Mapping[Any, Any]:
    kafka = library()
    found: Mapping[Any, Any] = admin(cluster).list_offsets(
        {kafka.TopicPartition(topic, p): spec for p in partitions},
        isolation_level=kafka.IsolationLevel.READ_COMMITTED,
        request_timeout=ANSWER_S,
    )
    return found


def _offsets(asked: Mapping[Any, Any]) -> dict[int, int]:
    return {place.partition: int(answer.result().offset) for place, answer in asked.items()}


def called(cluster: Cluster, topic: str | None, act: Callable[..., Any], *arguments: Any) -> Any:
    """Call the library, and turn its errors into ours, also those that it loses (see `lost_error`)."""
    try:
        return act(*arguments)
    except library().KafkaException as error:
        raise refused(cluster, error, topic) from None
    except SystemError as error:
        told = lost_error(error)
        if told is None:
            raise gave_up(cluster, error) from error
        raise refused(cluster, library().KafkaException(told), topic) from None


def lost_error(error: SystemError) -> Any:
    """The Kafka error behind a SystemError of the library; None if it is lost.

    The library raises a fatal error while it runs callbacks, and goes on with the next callback.
    Python then reports that a call failed without an exception, or with a result and an exception.
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, library().KafkaException):
            return found.args[0]
        found = found.__cause__ or found.__context__
    return None


def gave_up(cluster: Cluster, error: SystemError) -> MillpondError:
    """The error where the library failed and does not say why: its client is closed and made anew."""
    return away(
        "the Kafka client failed",
        f"it did not say why: {cluster.masked(str(error))} ({cluster.brokers})",
        hint="it is opened again; nothing that was committed is lost",
    )


def refused(cluster: Cluster, error: Exception, topic: str | None = None) -> MillpondError:
    """Turn an error of the library into one of our kinds."""
    kafka = library()
    told = error.args[0]
    said = cluster.masked(str(told.str()))
    codes = kafka.KafkaError
    if told.code() == codes.UNKNOWN_TOPIC_OR_PART:
        return UnavailableError(
            f"there is no topic {topic!r}",
            detail=f"at {cluster.brokers}",
            hint="create it, or correct its name; the pond continues when it exists",
        )
    wrong = (
        codes._INVALID_ARG,
        codes._AUTHENTICATION,
        codes.SASL_AUTHENTICATION_FAILED,
        codes.TOPIC_AUTHORIZATION_FAILED,
        codes.CLUSTER_AUTHORIZATION_FAILED,
    )
    if told.code() in wrong:
        return InvalidError(
            "the Kafka cluster cannot be used like this",
            detail=f"{cluster.brokers}: {said}",
            hint="correct the topic, the brokers or the settings of the client",
        )
    return away(
        "the Kafka cluster does not answer",
        _reason(cluster, said),
        hint="check that the brokers run and can be reached from here; nothing that was committed is lost",
    )


def unknown_offset(cluster: Cluster, topic: str, partition: int, said: int) -> UnavailableError:
    """The broker does not know an offset: it is starting, or the partition has no leader yet."""
    return away(
        f"the offsets of topic {topic!r} are not known yet",
        f"partition {partition} of topic {topic!r} has no offsets yet (code {said}, {cluster.brokers})",
        hint="a broker that was restarted gives them once the partition has a leader",
    )


def deleted(topic: str, partition: int, wanted: int, first: int | None = None) -> DataError:
    """The error for messages that were deleted before they were read."""
    there = "" if first is None else f", and the first one there is {first}"
    return DataError(
        f"messages of topic {topic!r} were deleted before they were read",
        detail=f"partition {partition} is wanted from offset {wanted}{there}",
        hint="keep messages longer (retention.ms, retention.bytes) than the pond may stand still; to go on "
        "without those that are lost, define the source under another name",
    )
