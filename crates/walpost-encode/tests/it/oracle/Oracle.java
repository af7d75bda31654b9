import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.connector.postgresql.PostgresConnectorTask;
import io.debezium.connector.postgresql.PostgresSchemaFactory;
import io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent;
import io.debezium.transforms.outbox.EventRouter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/** Answers each line of JSON with one: what Debezium and Kafka Connect make of a case. */
public class Oracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Object> MADE = new HashMap<>();
    private static final Map<String, PostgresConnectorTask> TASKS = new LinkedHashMap<>();

    public static void main(String[] arguments) throws Exception {
        // Debezium may print; answers go to the real output alone.
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null;) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), answer);
            }
            catch (Throwable error) {
                answer = JSON.createObjectNode().put("error", describe(error));
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        TASKS.values().forEach(PostgresConnectorTask::stop);
        // Threads of Debezium may linger.
        System.exit(0);
    }

    private static void answer(JsonNode question, ObjectNode answer) throws Exception {
        switch (question.get("op").asText()) {
            case "convert" -> convert(question, answer);
            case "literal" -> literal(question, answer);
            case "expand" -> expand(question, answer);
            case "decode" -> decode(question, answer);
            case "start" -> start(question);
            case "drain" -> drain(question, answer);
            default -> throw new IllegalArgumentException(question.get("op").asText());
        }
    }

    private static String describe(Throwable error) {
        StringBuilder text = new StringBuilder(error.toString());
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            text.append(" <- ").append(cause);
        }
        return text.toString();
    }

    // One value through one converter.

    private static void convert(JsonNode question, ObjectNode answer) throws Exception {
        Schema schema = question.get("schema").isNull() ? null : schema(question.get("schema"));
        Object value = value(schema, question.get("value"));
        answer.put("hex", hex(bytes(question.get("converter"), schema, value)));
        String registry = question.get("converter").get("config").path("schema.registry.url").asText();
        if (registry.startsWith("mock://")) {
            registered(registry.substring("mock://".length()), answer);
        }
    }

    /** What a transform takes a text for. */
    private static void literal(JsonNode question, ObjectNode answer) throws Exception {
        SchemaAndValue read = Values.parseString(question.get("text").asText());
        Schema schema = read == null ? null : read.schema();
        Object value = read == null ? null : read.value();
        answer.put("hex", hex(bytes(question.get("converter"), schema, value)));
    }

    /** What Confluent's registry without a server has been given; its classes are not always there. */
    private static void registered(String scope, ObjectNode answer) throws Exception {
        Object client = Class.forName("io.confluent.kafka.schemaregistry.testutil.MockSchemaRegistry")
                .getMethod("getClientForScope", String.class).invoke(null, scope);
        for (Object subject : (Collection<?>) client.getClass().getMethod("getAllSubjects").invoke(client)) {
            Object latest = client.getClass().getMethod("getLatestSchemaMetadata", String.class).invoke(client, subject);
            answer.put("subject", subject.toString());
            answer.put("schema", latest.getClass().getMethod("getSchema").invoke(latest).toString());
            answer.put("type", latest.getClass().getMethod("getSchemaType").invoke(latest).toString());
        }
    }

    private static byte[] bytes(JsonNode converter, Schema schema, Object value) throws Exception {
        String name = converter.get("class").asText();
        boolean isHeader = converter.path("header").asBoolean();
        Object made = MADE.get(converter.toString());
        if (made == null) {
            made = Class.forName(name).getDeclaredConstructor().newInstance();
            Map<String, Object> config = strings(converter.get("config"));
            if (isHeader) {
                config.put("converter.type", "header");
                ((HeaderConverter) made).configure(config);
            }
            else {
                ((Converter) made).configure(config, converter.path("key").asBoolean());
            }
            MADE.put(converter.toString(), made);
        }
        return isHeader
                ? ((HeaderConverter) made).fromConnectHeader("topic", "name", schema, value)
                : ((Converter) made).fromConnectData("topic", schema, value);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    private static Map<String, Object> strings(JsonNode object) {
        Map<String, Object> strings = new HashMap<>();
        object.properties().forEach(entry -> strings.put(entry.getKey(), entry.getValue().asText()));
        return strings;
    }

    private static Schema schema(JsonNode node) {
        SchemaBuilder builder = switch (node.get("type").asText()) {
            case "array" -> SchemaBuilder.array(schema(node.get("items")));
            case "map" -> SchemaBuilder.map(schema(node.get("keys")), schema(node.get("values")));
            case "float" -> SchemaBuilder.float32();
            case "double" -> SchemaBuilder.float64();
            case "boolean" -> SchemaBuilder.bool();
            case "struct" -> {
                SchemaBuilder struct = SchemaBuilder.struct();
                node.get("fields").forEach(field -> struct.field(field.get("field").asText(), schema(field)));
                yield struct;
            }
            default -> SchemaBuilder.type(Schema.Type.valueOf(node.get("type").asText().toUpperCase()));
        };
        if (node.get("optional").asBoolean()) {
            builder.optional();
        }
        if (node.has("name")) {
            builder.name(node.get("name").asText());
        }
        if (node.has("version")) {
            builder.version(node.get("version").asInt());
        }
        if (node.has("doc")) {
            builder.doc(node.get("doc").asText());
        }
        node.path("parameters").properties().forEach(
                entry -> builder.parameter(entry.getKey(), entry.getValue().asText()));
        if (node.has("default")) {
            builder.defaultValue(value(builder, node.get("default")));
        }
        return builder.build();
    }

    /** Numbers are text, bytes hexadecimal, structs lists, maps lists of pairs. */
    private static Object value(Schema schema, JsonNode node) {
        if (node.isNull()) {
            return null;
        }
        if (schema == null) {
            return node.asText();
        }
        if (schema.name() != null && schema.name().startsWith("org.apache.kafka.connect.data.")) {
            return schema.name().endsWith("Decimal")
                    ? new BigDecimal(node.asText())
                    : new java.util.Date(Long.parseLong(node.asText()));
        }
        switch (schema.type()) {
            case INT8:
                return Byte.valueOf(node.asText());
            case INT16:
                return Short.valueOf(node.asText());
            case INT32:
                return Integer.valueOf(node.asText());
            case INT64:
                return Long.valueOf(node.asText());
            case FLOAT32:
                return Float.intBitsToFloat(Integer.parseUnsignedInt(node.asText(), 16));
            case FLOAT64:
                return Double.longBitsToDouble(Long.parseUnsignedLong(node.asText(), 16));
            case BOOLEAN:
                return node.asBoolean();
            case STRING:
                return node.asText();
            case BYTES:
                return ByteBuffer.wrap(HexFormat.of().parseHex(node.asText()));
            case ARRAY:
                List<Object> list = new ArrayList<>();
                node.forEach(element -> list.add(value(schema.valueSchema(), element)));
                return list;
            case MAP:
                Map<Object, Object> map = new LinkedHashMap<>();
                node.forEach(entry -> map.put(
                        value(schema.keySchema(), entry.get(0)), value(schema.valueSchema(), entry.get(1))));
                return map;
            default:
                Struct struct = new Struct(schema.schema());
                for (int at = 0; at < node.size(); at++) {
                    struct.put(schema.fields().get(at), value(schema.fields().get(at).schema(), node.get(at)));
                }
                return struct;
        }
    }

    // A payload through the router.

    private static final Schema ROW = SchemaBuilder.struct().name("p.public.outbox.Value").optional()
            .field("id", Schema.STRING_SCHEMA)
            .field("aggregatetype", Schema.STRING_SCHEMA)
            .field("aggregateid", Schema.STRING_SCHEMA)
            .field("type", Schema.STRING_SCHEMA)
            .field("payload", Schema.OPTIONAL_STRING_SCHEMA)
            .build();
    private static final Schema SOURCE = SchemaBuilder.struct().name("source")
            .field("connector", Schema.STRING_SCHEMA)
            .build();
    private static final Schema ENVELOPE = SchemaBuilder.struct().name("p.public.outbox.Envelope")
            .field("before", ROW)
            .field("after", ROW)
            .field("source", SOURCE)
            .field("op", Schema.STRING_SCHEMA)
            .field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA)
            .build();

    private static void expand(JsonNode question, ObjectNode answer) throws Exception {
        Struct row = new Struct(ROW)
                .put("id", "1")
                .put("aggregatetype", "User")
                .put("aggregateid", "7")
                .put("type", "T")
                .put("payload", question.get("payload").asText());
        Struct change = new Struct(ENVELOPE)
                .put("after", row)
                .put("source", new Struct(SOURCE).put("connector", "postgresql"))
                .put("op", "c")
                .put("ts_ms", 7L);
        SourceRecord record = new SourceRecord(Map.of(), Map.of(), "t", null, null, ENVELOPE, change);
        SourceRecord routed = router(question.get("router")).apply(record);
        answer.put("hex", hex(bytes(question.get("converter"), routed.valueSchema(), routed.value())));
    }

    // The content of a logical message through the transform before the router.

    private static final Schema CONTENT = SchemaBuilder.struct().name("message")
            .field("prefix", Schema.OPTIONAL_STRING_SCHEMA)
            .field("content", Schema.OPTIONAL_BYTES_SCHEMA)
            .build();
    private static final Schema MESSAGE = SchemaBuilder.struct()
            .name(PostgresSchemaFactory.POSTGRES_LOGICAL_DECODING_MESSAGE_MONITOR_VALUE_SCHEMA_NAME)
            .field("op", Schema.STRING_SCHEMA)
            .field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA)
            .field("source", SOURCE)
            .field("message", CONTENT)
            .build();

    @SuppressWarnings("unchecked")
    private static void decode(JsonNode question, ObjectNode answer) throws Exception {
        byte[] content = question.get("content").asText().getBytes(StandardCharsets.UTF_8);
        Struct message = new Struct(MESSAGE)
                .put("op", "m")
                .put("ts_ms", 7L)
                .put("source", new Struct(SOURCE).put("connector", "postgresql"))
                .put("message", new Struct(CONTENT).put("prefix", "p").put("content", content));
        JsonNode config = question.get("decoder");
        var decoder = (DecodeLogicalDecodingMessageContent<SourceRecord>) MADE.computeIfAbsent("decoder " + config, key -> {
            var made = new DecodeLogicalDecodingMessageContent<SourceRecord>();
            made.configure(strings(config));
            return made;
        });
        SourceRecord record = new SourceRecord(Map.of(), Map.of(), "t", null, null, MESSAGE, message);
        answer.setAll(message(decoder.apply(record), question.get("way")));
    }

    @SuppressWarnings("unchecked")
    private static EventRouter<SourceRecord> router(JsonNode config) {
        return (EventRouter<SourceRecord>) MADE.computeIfAbsent("router " + config, key -> {
            EventRouter<SourceRecord> router = new EventRouter<>();
            router.configure(strings(config));
            return router;
        });
    }

    // Rows of a real table through the connector.

    private static void start(JsonNode question) {
        PostgresConnectorTask task = new PostgresConnectorTask();
        Map<String, String> config = new HashMap<>();
        strings(question.get("config")).forEach((key, value) -> config.put(key, value.toString()));
        task.initialize(context(config));
        task.start(config);
        TASKS.put(question.get("name").asText(), task);
    }

    private static void drain(JsonNode question, ObjectNode answer) throws Exception {
        PostgresConnectorTask task = TASKS.get(question.get("name").asText());
        // A router remembers schemas, which are those of one connector.
        MADE.keySet().removeIf(key -> key.startsWith("router "));
        List<SourceRecord> records = new ArrayList<>();
        long end = System.nanoTime() + question.get("limit_ms").asLong() * 1_000_000;
        while (records.size() < question.get("count").asInt() && System.nanoTime() < end) {
            List<SourceRecord> polled = task.poll();
            if (polled != null) {
                polled.forEach(record -> {
                    if (record.valueSchema() != null && record.valueSchema().name().endsWith(".Envelope")) {
                        records.add(record);
                    }
                });
            }
        }
        ArrayNode rows = answer.putArray("rows");
        for (SourceRecord record : records) {
            ArrayNode row = rows.addArray();
            for (JsonNode way : question.get("ways")) {
                try {
                    row.add(message(record, way));
                }
                catch (Exception error) {
                    row.addObject().put("error", describe(error));
                }
            }
        }
    }

    private static ObjectNode message(SourceRecord record, JsonNode way) throws Exception {
        // The router adds headers to the record that it is given.
        SourceRecord copy = record.newRecord(record.topic(), record.kafkaPartition(), record.keySchema(), record.key(),
                record.valueSchema(), record.value(), record.timestamp(), record.headers().duplicate());
        SourceRecord routed = router(way.get("router")).apply(copy);
        ObjectNode message = JSON.createObjectNode().put("topic", routed.topic());
        message.put("key", hex(bytes(way.get("key"), routed.keySchema(), routed.key())));
        message.put("value", hex(bytes(way.get("value"), routed.valueSchema(), routed.value())));
        ArrayNode headers = message.putArray("headers");
        for (Header header : routed.headers()) {
            if (!header.key().startsWith("__debezium.context.")) {
                headers.addArray().add(header.key()).add(hex(bytes(way.get("header"), header.schema(), header.value())));
            }
        }
        return message;
    }

    private static SourceTaskContext context(Map<String, String> config) {
        OffsetStorageReader nothing = new OffsetStorageReader() {
            @Override
            public <T> Map<String, Object> offset(Map<String, T> partition) {
                return null;
            }

            @Override
            public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
                return new HashMap<>();
            }
        };
        return new SourceTaskContext() {
            @Override
            public Map<String, String> configs() {
                return config;
            }

            @Override
            public OffsetStorageReader offsetStorageReader() {
                return nothing;
            }

            @Override
            public org.apache.kafka.common.metrics.PluginMetrics pluginMetrics() {
                return null;
            }
        };
    }
}
