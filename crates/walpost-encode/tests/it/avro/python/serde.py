"""Confluent's own client for Python: reads what is given in hexadecimal, or
writes values. A list of orders on standard input, a list of answers on standard
output; the registry's address is the only argument."""

import datetime
import decimal
import json
import sys

from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

STRATEGIES = {
    "topic": topic_subject_name_strategy,
    "record": record_subject_name_strategy,
    "topic-record": topic_record_subject_name_strategy,
}
client = SchemaRegistryClient({"url": sys.argv[1]})


def plain(value):
    """As JSON has it; what JSON has not, as text with its type before it."""
    if isinstance(value, bytes):
        return "bytes " + value.hex()
    if isinstance(value, decimal.Decimal):
        return "decimal " + str(value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return type(value).__name__ + " " + value.isoformat()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def native(value):
    """The reverse of plain."""
    if isinstance(value, dict):
        return {name: native(item) for name, item in value.items()}
    if isinstance(value, list):
        return [native(item) for item in value]
    if isinstance(value, str) and " " in value:
        kind, text = value.split(" ", 1)
        known = {
            "bytes": bytes.fromhex,
            "decimal": decimal.Decimal,
            "datetime": datetime.datetime.fromisoformat,
            "date": datetime.date.fromisoformat,
            "time": datetime.time.fromisoformat,
        }
        return known[kind](text) if kind in known else value
    return value


def answer(order):
    field = MessageField.KEY if order.get("key") else MessageField.VALUE
    context = SerializationContext(order["topic"], field)
    strategy = STRATEGIES[order.get("strategy", "topic")]
    if order["op"] == "read":
        data = bytes.fromhex(order["hex"])
        number = int.from_bytes(data[1:5], "big")
        subject = strategy(context, order.get("record"))
        latest = client.get_latest_version(subject)
        read = AvroDeserializer(client)(data, context)
        return {"value": plain(read), "subject": subject, "same": latest.schema_id == number}
    if order["op"] == "read-json":
        conf = {"subject.name.strategy": strategy}
        schema = client.get_latest_version(strategy(context, order.get("record"))).schema
        read = JSONDeserializer(schema, conf=conf, schema_registry_client=client)
        return {"value": plain(read(bytes.fromhex(order["hex"]), context))}
    conf = {"subject.name.strategy": strategy, **order.get("conf", {})}
    write = AvroSerializer(client, order["schema"], conf=conf)
    return {"hex": write(native(order["value"]), context).hex()}


json.dump([answer(order) for order in json.load(sys.stdin)], sys.stdout)
