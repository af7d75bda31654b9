"""A consumer in Python on the tables of walpost-consumer: it hands over to a
Rust consumer of the same name, and back, without an effect made twice.

Debian: python3-psycopg2 and python3-confluent-kafka. Everything that it does to the tables
is the contract in docs/sql-contract.md; `handle` is the application.

This client sends no metadata beside an offset, so nothing is committed to Kafka:
the database alone says where to go on.

What it leaves to the Rust consumer, and stops at with a message: the first start
of a partition, resets by Kafka's tools, records without an id, events whose
handler fails, and consumers that have parked events.
"""

import os
import re
import signal
import sys
import threading
import time
import uuid

import psycopg2
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

MAX_BATCH_EVENTS = 500
POLL_SECONDS = 0.2
ANSWER_SECONDS = 15
SESSION_TIMEOUT_MS = 6_000
CLAIM_TIMEOUT_MS = 2_000
LOCK_TIMEOUT_MS = 10_000
IDLE_TIMEOUT_MS = 35_000
# Long enough to hear from the group that the partition is another one's.
RETRY_SECONDS = 1.5 * SESSION_TIMEOUT_MS / 5 / 1_000
CLAIM_ATTEMPTS = 10
# Ids that are unique without their table, and so have no source: UUIDs and ULIDs.
GLOBALLY_UNIQUE = re.compile(
    "(?i)(?:(?!0{8}-0{4}-0{4}-)(?!f{8}-f{4}-f{4}-f{4}-f{12}$)"
    "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    "|(?![0-9]{26}$)[0-7][0-9a-hjkmnp-tv-z]{25})",
    re.ASCII,
)


def handle(cursor, events):
    """The application: new events of one partition, in order, in the
    transaction that also stores their offset. It must not commit."""
    for event in events:
        cursor.execute(
            "insert into python_shipment (event_id, part, off) values (%s, %s, %s)",
            (event.id, event.partition, event.offset),
        )


class Stop(Exception):
    """Somebody has to decide; the message says what."""


class GivenUp(Exception):
    """The partition may belong to another owner by now: claim it again."""


class Event:
    """A record with its identity."""

    def __init__(self, record):
        self.topic, self.partition = record.topic(), record.partition()
        self.offset, self.key, self.value = record.offset(), record.key(), record.value()
        self.headers = record.headers() or []
        self.id = self._header("id")
        self.source = self._source()

    def _source(self):
        """Within what the id is unique: docs/identity.md."""
        if GLOBALLY_UNIQUE.fullmatch(self.id):
            return ""
        return self._header("walpost-source", self.topic)

    def _header(self, name, otherwise=None):
        """The first header of that name, as text without NUL."""
        for header, value in self.headers:
            if header == name:
                text = (value or b"").decode("utf-8", "replace")
                if not text or "\0" in text or "\ufffd" in text:
                    raise Stop(f"{self._place()}: the header {name} is unusable")
                return text
        if otherwise is None:
            raise Stop(f"{self._place()}: no header {name}; a Rust consumer parks such records")
        return otherwise

    def _place(self):
        return f"{self.topic}[{self.partition}]@{self.offset}"


class Claim:
    """A claimed partition: one connection, and what a batch has to find."""

    def __init__(self, settings, partition, cluster):
        self.settings, self.of, self.cluster = settings, partition, cluster
        self.place = f"{partition.topic}[{partition.partition}]"
        self.connection = psycopg2.connect(settings.database)
        self.connection.autocommit = True  # BEGIN and COMMIT are written out below
        try:
            with self.connection.cursor() as cursor:
                self._find(cursor)
                self._claim(cursor)
                self._look_aside(cursor)
        except BaseException:
            self.connection.close()
            raise

    def close(self):
        self.connection.close()

    def _find(self, cursor):
        cursor.execute(
            "select id, group_id, cluster_id, topic_id from walpost.position"
            " where consumer = %s and topic = %s and part = %s",
            (self.settings.consumer, self.of.topic, self.of.partition),
        )
        row = cursor.fetchone()
        if row is None:
            raise Stop(f"{self.place}: never read by a Rust consumer, start that first")
        self.position, group, cluster, self.topic_id = row
        if (group, cluster) != (self.settings.group, self.cluster):
            raise Stop(f"{self.place}: the position belongs to group {group} of cluster {cluster}")

    def _look_aside(self, cursor):
        """What the last owner has left. After the claim: nobody adds to it now."""
        cursor.execute(
            "select exists (select from walpost.consumer_parked"
            " where consumer = %s and state <> 'discarded')",
            (self.settings.consumer,),
        )
        if cursor.fetchone()[0]:
            raise Stop("events are parked, which this example does not look at")
        cursor.execute(
            "select exists (select from walpost.consumer_again where pos_id = %s)"
            " or exists (select from walpost.consumer_reset where pos_id = %s and run = %s"
            " and mode = 'chosen' and chosen_until > %s)",
            (self.position, self.position, self.run, self.next_offset),
        )
        if cursor.fetchone()[0]:
            raise Stop(f"{self.place}: chosen events are being replayed, which is for Rust alone")

    def _claim(self, cursor):
        """One message, which is one transaction, so that a paused client
        cannot hold it. A second connection ends who stands in the way."""
        nonce = uuid.uuid4().hex
        claim = (
            f"/* walpost claim {nonce} */ set transaction isolation level read committed;"
            f" set local lock_timeout = {CLAIM_TIMEOUT_MS};"
            " select epoch, next_offset, run, reset_id::text, known"
            " from walpost.claim(%s, %s, %s, %s)"
        )
        ending = threading.Timer(CLAIM_TIMEOUT_MS / 2_000, self._end_blockers, [nonce])
        ending.start()
        try:
            cursor.execute(claim, (self.position, self.settings.group, self.cluster, self.topic_id))
        finally:
            ending.cancel()
        self.epoch, self.next_offset, self.run, self.reset_id, known = cursor.fetchone()
        if self.next_offset is None:
            raise Stop(f"{self.place}: its start is not decided, start a Rust consumer first")
        self.known = [offset for offset in known if offset != self.next_offset]
        self.known.append(self.next_offset)
        cursor.execute(
            "select max(fill_until) from walpost.consumer_reset"
            " where pos_id = %s and run = %s and mode = 'fill'",
            (self.position, self.run),
        )
        self.fill_until = cursor.fetchone()[0]

    def _end_blockers(self, nonce):
        """The transactions that block the claim and wait for nobody."""
        connection = psycopg2.connect(self.settings.database)
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(
                "select b.pid, pg_terminate_backend(b.pid, 5000) from pg_stat_activity a,"
                " unnest(pg_blocking_pids(a.pid)) b(pid)"
                " where a.pid <> pg_backend_pid()"
                " and starts_with(a.query, '/* walpost claim ' || %s)"
                " and cardinality(pg_blocking_pids(b.pid)) = 0",
                (nonce,),
            )
        connection.close()

    def look_for_reset(self, committed):
        """The group's offset in Kafka is one that the row knows, or was set by
        somebody else."""
        if committed == OFFSET_INVALID or committed in self.known:
            # Kafka may hold it for as long as nobody commits another one.
            if committed != OFFSET_INVALID:
                self.known = [offset for offset in self.known if offset != committed] + [committed]
            return
        raise Stop(
            f"{self.place}: the group's offset was set to {committed} by somebody else, and"
            f" effects end before {self.next_offset}; start a Rust consumer, which carries it out"
        )

    def apply(self, events):
        """One transaction: fence and offset, deduplication, effects, end."""
        new = events[-1].offset + 1
        with self.connection.cursor() as cursor:
            try:
                cursor.execute(
                    "begin isolation level read committed;"
                    f" select walpost.begin_session({LOCK_TIMEOUT_MS}, {IDLE_TIMEOUT_MS});"
                    " select walpost.batch_begin(%s, %s, %s, %s, %s::bigint[], null)",
                    (self.position, self.epoch, self.next_offset, new, self.known),
                )
                offsets = self._dedup(cursor, events)
                fresh = [event for event in events if event.offset in offsets]
                if fresh:
                    handle(cursor, fresh)
                cursor.execute(
                    "reset session authorization; reset role;"
                    f" select walpost.undo_session({LOCK_TIMEOUT_MS}, {IDLE_TIMEOUT_MS}, false);"
                    " select walpost.batch_end(%s)",
                    (f"{self.position}:{self.epoch}:{new}",),
                )
                cursor.execute("commit")
            except psycopg2.Error as error:
                self._failed(cursor, error)
        self.next_offset = new
        return len(fresh)

    def _dedup(self, cursor, events):
        """The offsets of the events whose effect is not there."""
        rerun = self.run > 0 and not (
            self.fill_until is not None and events[0].offset < self.fill_until
        )
        conflict = (
            "(consumer, source, event_id) do update set run = excluded.run"
            " where d.pos_id = excluded.pos_id and d.off = excluded.off and d.run < excluded.run"
            if rerun
            else "do nothing"
        )
        cursor.execute(
            "insert into walpost.done as d (consumer, source, event_id, pos_id, off, run)"
            " select %s, u.src, u.id, %s, u.off, %s"
            " from unnest(%s::text[], %s::text[], %s::bigint[]) u(src, id, off)"
            ' order by u.src collate "C", u.id collate "C", u.off'
            f" on conflict {conflict} returning d.off",
            (
                self.settings.consumer,
                self.position,
                self.run,
                [event.source for event in events],
                [event.id for event in events],
                [event.offset for event in events],
            ),
        )
        return {offset for (offset,) in cursor.fetchall()}

    def _failed(self, cursor, error):
        """By SQLSTATE, without what PostgreSQL quotes."""
        state = error.pgcode or ""
        if self.connection.closed or state[:2] in ("", "08", "53", "57") or state in (
            "WP001", "40001", "40P01", "55P03", "25P03", "25P04", "58000", "58030",
        ):
            raise GivenUp(f"SQLSTATE {state or 'none, the connection was lost'}") from None
        cursor.execute("rollback; select walpost.forget_session()")
        # A name that is wrong, or a right that is missing: no event's fault.
        if state[:2] == "42":
            raise Stop(f"{self.place}: {error.diag.message_primary} (SQLSTATE {state})") from None
        raise Stop(
            f"{self.place} from offset {self.next_offset} on: refused with SQLSTATE {state};"
            " a Rust consumer finds the event and parks it"
        ) from None


class Member:
    """A member of the group, and its claims."""

    def __init__(self, settings):
        self.settings = settings
        self.claims = {}
        self.wanted = {}
        self.kafka = Consumer(
            {
                "bootstrap.servers": settings.brokers,
                "group.id": settings.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 5,
                # As the Rust consumers of the group without an instance id have it.
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        self.cluster = self.kafka.list_topics(timeout=ANSWER_SECONDS).cluster_id
        self.kafka.subscribe(
            settings.topics,
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def _assigned(self, _, partitions):
        """Nothing is fetched before its claim says from where."""
        for partition in partitions:
            partition.offset = self._claim_soon(partition).next_offset
        self.kafka.incremental_assign(partitions)

    def _revoked(self, _, partitions):
        for partition in partitions:
            self._drop(key(partition))
            self.wanted.pop(key(partition), None)
        self.kafka.incremental_unassign(partitions)

    def _claim_soon(self, partition):
        for attempt in range(CLAIM_ATTEMPTS):
            if attempt > 0:
                time.sleep(RETRY_SECONDS)
            try:
                return self._claim(partition)
            except psycopg2.OperationalError as error:
                told(partition, error)
        raise Stop(f"{partition.topic}[{partition.partition}]: cannot be claimed")

    def _claim(self, partition):
        claim = Claim(self.settings, partition, self.cluster)
        asked = TopicPartition(partition.topic, partition.partition)
        (found,) = self.kafka.committed([asked], timeout=ANSWER_SECONDS)
        claim.look_for_reset(found.offset)
        self.claims[key(partition)] = claim
        print(f"claimed {claim.place} at {claim.next_offset}", flush=True)
        return claim

    def step(self):
        for of, after in list(self.wanted.items()):
            if time.monotonic() >= after:
                self._again(TopicPartition(*of))
        batches = {}
        for record in self.kafka.consume(MAX_BATCH_EVENTS, timeout=POLL_SECONDS):
            if record.error() is not None:
                self._kafka_failed(record.error())
                continue
            batches.setdefault((record.topic(), record.partition()), []).append(record)
        for of, records in batches.items():
            if of in self.claims:
                self._apply(of, self.claims[of], [Event(record) for record in records])

    def _kafka_failed(self, error):
        """Brokers that are away come back; records that are gone do not."""
        if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise Stop(f"Kafka: {error.name()}")
        print(f"Kafka: {error.name()}", flush=True)

    def _apply(self, of, claim, events):
        # In a replay one by one: no id twice, and on one side of a fill's end.
        size = 1 if claim.run > 0 else len(events)
        try:
            for start in range(0, len(events), size):
                claim.apply(events[start : start + size])
        except GivenUp as error:
            told(TopicPartition(*of), error)
            self._drop(of)
            self.kafka.pause([TopicPartition(*of)])
            self.wanted[of] = time.monotonic() + RETRY_SECONDS

    def _again(self, partition):
        """After a claim was lost, if the partition is still assigned."""
        try:
            claim = self._claim(partition)
        except psycopg2.OperationalError as error:
            told(partition, error)
            self.wanted[key(partition)] = time.monotonic() + RETRY_SECONDS
            return
        del self.wanted[key(partition)]
        self.kafka.seek(TopicPartition(partition.topic, partition.partition, claim.next_offset))
        self.kafka.resume([TopicPartition(partition.topic, partition.partition)])

    def _drop(self, of):
        claim = self.claims.pop(of, None)
        if claim is not None:
            claim.close()

    def close(self):
        for of in list(self.claims):
            self._drop(of)
        self.kafka.close()


def key(partition):
    return partition.topic, partition.partition


def told(partition, error):
    """Without what PostgreSQL quotes."""
    reason = str(error)
    if isinstance(error, psycopg2.Error):
        reason = f"SQLSTATE {error.pgcode or 'none, no connection'}"
    place = f"{partition.topic}[{partition.partition}]"
    print(f"claiming {place} again: {reason}", flush=True)


class Settings:
    """From the environment."""

    NEEDED = ["KAFKA", "DATABASE", "TOPICS", "CONSUMER"]

    def __init__(self, environment):
        missing = [name for name in self.NEEDED if not environment.get(name)]
        if missing:
            raise Stop(f"not set in the environment: {', '.join(missing)}")
        self.brokers = environment["KAFKA"]
        self.database = environment["DATABASE"]
        self.topics = environment["TOPICS"].split(",")
        self.consumer = environment["CONSUMER"]
        self.group = environment.get("GROUP", self.consumer)


def main():
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    signal.signal(signal.SIGINT, lambda *_: ended.append(True))
    try:
        member = Member(Settings(os.environ))
    except Stop as stop:
        sys.exit(f"{stop}")
    except KafkaException as error:
        sys.exit(f"no answer from the brokers at {os.environ['KAFKA']}: {error.args[0].str()}")
    try:
        while not ended:
            member.step()
    except Stop as stop:
        sys.exit(f"{stop}")
    finally:
        member.close()


if __name__ == "__main__":
    main()
