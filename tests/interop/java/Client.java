import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client, told what to do by a test in Python: a JSON object a line on standard input, an answer a line on
 * standard output, and lines of events from the members of flowing groups in between. Bytes are strings in latin-1.
 */
public final class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream OUT = System.out;

    final String broker;
    final Admin admin;
    final Map<String, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    final Map<String, KafkaShareConsumer<byte[], byte[]>> sharers = new HashMap<>();
    final Map<String, Member> members = new HashMap<>();
    final Map<String, Stream> streams = new HashMap<>();

    Client(String broker) {
        this.broker = broker;
        this.admin = Admin.create(Map.<String, Object>of("bootstrap.servers", broker, "request.timeout.ms", 10_000, "default.api.timeout.ms", 10_000));
    }

    public static void main(String[] arguments) throws Exception {
        Client client = new Client(arguments[0]);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        tell(Map.of("answer", "ready"));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            tell(client.answer(JSON.readTree(line)));
        }
        client.consumers.values().forEach(KafkaConsumer::close);
        client.sharers.values().forEach(KafkaShareConsumer::close);
        client.admin.close();
    }

    static void tell(Map<String, ?> what) {
        try {
            synchronized (OUT) {
                OUT.write((JSON.writeValueAsString(what) + "\n").getBytes(StandardCharsets.UTF_8));
                OUT.flush();
            }
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    Map<String, ?> answer(JsonNode ask) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("number", ask.get("number"));
        try {
            answer.put("answer", perform(ask.get("verb").asText(), ask));
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            answer.put("error", cause.getClass().getSimpleName());
            answer.put("message", String.valueOf(cause.getMessage()));
        }
        return answer;
    }

    Object perform(String verb, JsonNode ask) throws Exception {
        return switch (verb) {
            case "produce" -> produce(ask);
            case "open" -> open(ask);
            case "stream" -> stream(ask);
            case "end_stream" -> endStream(ask);
            case "join" -> join(ask);
            case "leave" -> leave(ask);
            case "assign", "subscribe", "poll", "seek", "commit", "committed", "offsets_for_times", "ends",
                    "assignment", "close" -> consume(verb, ask);
            case "share_open", "share_poll", "share_commit", "share_close" -> share(verb, ask);
            case "list_groups", "describe_group", "describe_classic_group", "describe_share_group", "group_offsets",
                    "alter_group_offsets", "delete_group_offsets", "delete_group", "remove_members", "share_offsets",
                    "alter_share_offsets", "delete_share_offsets", "delete_share_group" -> groups(verb, ask);
            default -> administer(verb, ask);
        };
    }

    // Records

    Object produce(JsonNode ask) throws Exception {
        List<Object> kept = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = newProducer(settings(ask))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode each : ask.get("records")) {
                sent.add(producer.send(record(ask.get("topic").asText(), each)));
            }
            for (Future<RecordMetadata> each : sent) {
                kept.add(outcome(each));
            }
        }
        return kept;
    }

    static KafkaProducer<byte[], byte[]> newProducer(Properties settings) {
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return new KafkaProducer<>(settings);
    }

    static ProducerRecord<byte[], byte[]> record(String topic, JsonNode each) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : list(each.get("headers"))) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Integer partition = each.has("partition") ? each.get("partition").asInt() : null;
        Long timestamp = each.has("timestamp") ? each.get("timestamp").asLong() : null;
        return new ProducerRecord<>(topic, partition, timestamp, bytes(each.get("key")), bytes(each.get("value")), headers);
    }

    /** Partition and offset, or the name of the error. */
    static Object outcome(Future<RecordMetadata> sent) throws InterruptedException {
        try {
            RecordMetadata kept = sent.get();
            return List.of(kept.partition(), kept.offset());
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }

    // Streams: numbers to each partition in turn until told to end, each told of when it is acknowledged

    Object stream(JsonNode ask) {
        String name = ask.get("name").asText();
        Stream stream = new Stream(name, newProducer(settings(ask)), ask.get("topic").asText(),
                ask.get("partitions").asInt(), ask.get("pause_ms").asInt());
        streams.put(name, stream);
        stream.start();
        return null;
    }

    /** When the last was answered; how many were sent. */
    Object endStream(JsonNode ask) throws InterruptedException {
        Stream stream = streams.remove(ask.get("name").asText());
        stream.ending = true;
        stream.join();
        return stream.sent;
    }

    static final class Stream extends Thread {
        final KafkaProducer<byte[], byte[]> producer;
        final String topic;
        final int partitions;
        final int pauseMs;
        volatile boolean ending;
        int sent;

        Stream(String name, KafkaProducer<byte[], byte[]> producer, String topic, int partitions, int pauseMs) {
            super(name);
            this.producer = producer;
            this.topic = topic;
            this.partitions = partitions;
            this.pauseMs = pauseMs;
        }

        @Override
        public void run() {
            try (producer) {
                for (; !ending; sent++) {
                    int number = sent;
                    byte[] value = String.format("%-100d", number).getBytes(StandardCharsets.ISO_8859_1);
                    producer.send(new ProducerRecord<>(topic, number % partitions, null, value), (where, error) -> {
                        if (error == null) {
                            tell(Map.of("event", "acknowledged", "member", getName(), "kept", List.of(number, where.offset())));
                        } else {
                            tell(Map.of("event", "failed", "member", getName(), "error", error.toString()));
                        }
                    });
                    Thread.sleep(pauseMs);
                }
            } catch (Exception error) {
                tell(Map.of("event", "failed", "member", getName(), "error", error.toString()));
            }
        }
    }

    // Consumers: each stays open under its name until it is closed

    Object open(JsonNode ask) {
        consumers.put(ask.get("name").asText(), newConsumer(settings(ask)));
        return null;
    }

    static KafkaConsumer<byte[], byte[]> newConsumer(Properties settings) {
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.putIfAbsent("auto.offset.reset", "earliest");
        settings.putIfAbsent("enable.auto.commit", "false");
        settings.putIfAbsent("fetch.max.wait.ms", "50");
        return new KafkaConsumer<>(settings);
    }

    Object consume(String verb, JsonNode ask) {
        KafkaConsumer<byte[], byte[]> consumer = consumers.get(ask.get("name").asText());
        switch (verb) {
            case "assign" -> consumer.assign(partitions(ask));
            case "subscribe" -> {
                if (ask.has("pattern") && ask.path("by_broker").asBoolean()) {
                    consumer.subscribe(new SubscriptionPattern(ask.get("pattern").asText()));
                } else if (ask.has("pattern")) {
                    consumer.subscribe(Pattern.compile(ask.get("pattern").asText()));
                } else {
                    consumer.subscribe(List.of(ask.get("topic").asText()));
                }
            }
            case "seek" -> offsets(ask).forEach(consumer::seek);
            case "commit" -> {
                if (ask.has("offsets")) {
                    consumer.commitSync(offsets(ask));
                } else {
                    consumer.commitSync();
                }
            }
            case "close" -> consumers.remove(ask.get("name").asText()).close();
            case "poll" -> { return records(consumer.poll(Duration.ofMillis(100))); }
            case "committed" -> { return written(consumer.committed(Set.copyOf(partitions(ask)))); }
            case "assignment" -> { return consumer.assignment().stream().map(TopicPartition::partition).sorted().toList(); }
            case "ends" -> {
                List<TopicPartition> asked = partitions(ask);
                Map<TopicPartition, Long> first = consumer.beginningOffsets(asked), next = consumer.endOffsets(asked);
                return asked.stream().map(each -> List.of(first.get(each), next.get(each))).toList();
            }
            case "offsets_for_times" -> {
                TopicPartition at = partitions(ask).get(0);
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(at, ask.get("time").asLong())).get(at);
                return found == null ? null : List.of(found.offset(), found.timestamp());
            }
            default -> throw new IllegalArgumentException(verb);
        }
        return null;
    }

    static List<Object> records(ConsumerRecords<byte[], byte[]> polled) {
        List<Object> records = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> each : polled) {
            Map<String, Object> record = new LinkedHashMap<>();
            record.put("topic", each.topic());
            record.put("partition", each.partition());
            record.put("offset", each.offset());
            record.put("timestamp", each.timestamp());
            record.put("timestamp_type", each.timestampType().toString());
            record.put("leader_epoch", each.leaderEpoch().orElse(null));
            record.put("key", text(each.key()));
            record.put("value", text(each.value()));
            List<Object> headers = new ArrayList<>();
            each.headers().forEach(header -> headers.add(pair(header.key(), text(header.value()))));
            record.put("headers", headers);
            records.add(record);
        }
        return records;
    }

    // Members of a flowing group: each in its thread, committing what it read before it asks for more

    Object join(JsonNode ask) {
        String name = ask.get("name").asText();
        Member member = new Member(name, newConsumer(settings(ask)), ask.get("topic").asText());
        members.put(name, member);
        member.start();
        return null;
    }

    Object leave(JsonNode ask) throws InterruptedException {
        Member member = members.remove(ask.get("name").asText());
        member.consumer.wakeup();
        member.join();
        return null;
    }

    static final class Member extends Thread implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final String topic;

        Member(String name, KafkaConsumer<byte[], byte[]> consumer, String topic) {
            super(name);
            this.consumer = consumer;
            this.topic = topic;
        }

        @Override
        public void run() {
            consumer.subscribe(List.of(topic), this);
            try {
                while (true) {
                    ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(20));
                    if (!polled.isEmpty()) {
                        take(polled);
                    }
                }
            } catch (WakeupException leaving) {
                consumer.close();
            } catch (RuntimeException error) {
                happened("failed", "error", String.valueOf(error));
            }
        }

        void take(ConsumerRecords<byte[], byte[]> polled) {
            List<Object> values = new ArrayList<>();
            polled.forEach(each -> values.add(List.of(each.partition(), text(each.value()), each.offset())));
            happened("read", "values", values);
            try {
                consumer.commitSync(polled.nextOffsets());
                happened("kept", "partitions", numbers(polled.partitions()));
            } catch (WakeupException leaving) {
                throw leaving;
            } catch (KafkaException refused) {
                happened("refused", "error", refused.getClass().getSimpleName());
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            happened("assigned", "partitions", numbers(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            happened("revoked", "partitions", numbers(partitions));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            happened("lost", "partitions", numbers(partitions));
        }

        void happened(String event, String key, Object value) {
            tell(Map.of("event", event, "member", getName(), key, value));
        }

        static List<Integer> numbers(Collection<TopicPartition> partitions) {
            return partitions.stream().map(TopicPartition::partition).toList();
        }
    }

    // Administration

    Object administer(String verb, JsonNode ask) throws Exception {
        String topic = ask.path("topic").asText();
        return switch (verb) {
            case "create_topic" -> {
                Optional<Short> replicas = ask.has("replicas") ? Optional.of((short) ask.get("replicas").asInt()) : Optional.empty();
                NewTopic wanted = new NewTopic(topic, Optional.of(ask.get("partitions").asInt()), replicas);
                wanted.configs(texts(ask.path("configs")));
                CreateTopicsOptions how = new CreateTopicsOptions().validateOnly(ask.path("validate_only").asBoolean());
                CreateTopicsResult made = admin.createTopics(List.of(wanted), how);
                yield List.of(made.numPartitions(topic).get(), made.replicationFactor(topic).get(), made.topicId(topic).get().toString());
            }
            case "describe_topic" -> describe(admin.describeTopics(List.of(topic),
                    new DescribeTopicsOptions().partitionSizeLimitPerResponse(ask.path("page").asInt(2000))).allTopicNames().get().get(topic));
            case "describe_topic_by_id" -> {
                var id = org.apache.kafka.common.Uuid.fromString(ask.get("id").asText());
                yield admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id)))
                        .allTopicIds().get().get(id).name();
            }
            case "list_topics" -> admin.listTopics().names().get();
            case "delete_topic" -> admin.deleteTopics(List.of(topic)).all().get();
            case "create_partitions" ->
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(ask.get("partitions").asInt()))).all().get();
            case "describe_cluster" -> {
                DescribeClusterResult cluster = admin.describeCluster();
                yield Map.of("nodes", cluster.nodes().get().stream().map(each -> each.host() + ":" + each.port()).toList(),
                        "id", cluster.clusterId().get(), "controller", cluster.controller().get().id());
            }
            case "describe_configs" -> configs(resource(ask));
            case "alter_configs" -> alterConfigs(ask);
            case "list_config_resources" -> admin.listConfigResources().all().get().stream()
                    .map(each -> each.type().name() + " " + each.name()).toList();
            case "list_offset" -> {
                TopicPartition at = partitions(ask).get(0);
                ListOffsetsResult.ListOffsetsResultInfo found = admin.listOffsets(Map.of(at, spec(ask.get("at")))).partitionResult(at).get();
                yield List.of(found.offset(), found.timestamp());
            }
            case "delete_records" -> {
                TopicPartition at = partitions(ask).get(0);
                yield admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(ask.get("before").asLong())))
                        .lowWatermarks().get(at).get().lowWatermark();
            }
            case "log_dirs" -> logDirs(ask.get("broker").asInt());
            case "producers" -> admin.describeProducers(partitions(ask)).all().get().get(partitions(ask).get(0))
                    .activeProducers().stream().map(each -> List.of(each.producerEpoch(), each.lastSequence())).toList();
            case "elect_leaders" -> {
                Map<String, Object> elected = new HashMap<>();
                Set<TopicPartition> asked = new HashSet<>(partitions(ask));
                admin.electLeaders(ElectionType.valueOf(ask.get("type").asText()), asked).partitions().get()
                        .forEach((at, error) -> elected.put(at.toString(), error.map(each -> each.getClass().getSimpleName()).orElse(null)));
                yield elected;
            }
            case "features" -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().entrySet().stream()
                    .collect(Collectors.toMap(Map.Entry::getKey, each -> (int) each.getValue().maxVersionLevel()));
            default -> throw new IllegalArgumentException(verb);
        };
    }

    static Object describe(TopicDescription topic) {
        return Map.of("id", topic.topicId().toString(), "internal", topic.isInternal(), "partitions",
                topic.partitions().stream().map(each -> Map.of("partition", each.partition(), "leader", each.leader().id(),
                        "replicas", each.replicas().size(), "isr", each.isr().size())).toList());
    }

    Object configs(ConfigResource resource) throws Exception {
        Map<String, Object> found = new HashMap<>();
        for (ConfigEntry each : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            found.put(each.name(), pair(each.value(), each.source().name()));
        }
        return found;
    }

    Object alterConfigs(JsonNode ask) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        for (JsonNode each : ask.get("changes")) {
            ConfigEntry entry = new ConfigEntry(each.get(1).asText(), each.path(2).asText(null));
            changes.add(new AlterConfigOp(entry, AlterConfigOp.OpType.valueOf(each.get(0).asText())));
        }
        AlterConfigsOptions how = new AlterConfigsOptions().validateOnly(ask.path("validate_only").asBoolean());
        return admin.incrementalAlterConfigs(Map.of(resource(ask), changes), how).all().get();
    }

    static ConfigResource resource(JsonNode ask) {
        return ask.has("topic") ? new ConfigResource(ConfigResource.Type.TOPIC, ask.get("topic").asText())
                : ask.has("group") ? new ConfigResource(ConfigResource.Type.GROUP, ask.get("group").asText())
                : new ConfigResource(ConfigResource.Type.BROKER, ask.get("broker").asText());
    }

    static OffsetSpec spec(JsonNode at) {
        return switch (at.asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            case "earliest_local" -> OffsetSpec.earliestLocal();
            case "latest_tiered" -> OffsetSpec.latestTiered();
            default -> OffsetSpec.forTimestamp(at.asLong());
        };
    }

    Object logDirs(int broker) throws Exception {
        Map<String, Long> sizes = new HashMap<>();
        for (LogDirDescription each : admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker).values()) {
            if (each.error() != null) {
                throw each.error();
            }
            each.replicaInfos().forEach((at, replica) -> sizes.put(at.toString(), replica.size()));
        }
        return sizes;
    }

    // Members of share groups

    Object share(String verb, JsonNode ask) {
        String name = ask.get("name").asText();
        return switch (verb) {
            case "share_open" -> {
                Properties settings = settings(ask);
                settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
                settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
                sharers.put(name, new KafkaShareConsumer<>(settings));
                sharers.get(name).subscribe(List.of(ask.get("topic").asText()));
                yield null;
            }
            case "share_poll" -> take(sharers.get(name), ask.get("acknowledge"));
            case "share_commit" -> {
                List<String> errors = new ArrayList<>();
                sharers.get(name).commitSync(Duration.ofSeconds(10)).values()
                        .forEach(each -> each.ifPresent(error -> errors.add(error.getClass().getSimpleName())));
                yield errors;
            }
            case "share_close" -> {
                sharers.remove(name).close(Duration.ofSeconds(5)); // it would wait for a broker that is gone, for 30 s
                yield null;
            }
            default -> throw new IllegalArgumentException(verb);
        };
    }

    /** Value, delivery count; `acknowledge` says by value how each is acknowledged, those that it does not name accepted. */
    static List<Object> take(KafkaShareConsumer<byte[], byte[]> sharer, JsonNode acknowledge) {
        List<Object> taken = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> each : sharer.poll(Duration.ofMillis(100))) {
            taken.add(pair(text(each.value()), each.deliveryCount().orElseThrow()));
            if (acknowledge != null && !acknowledge.isNull()) {
                sharer.acknowledge(each, AcknowledgeType.valueOf(acknowledge.path(text(each.value())).asText("ACCEPT")));
            }
        }
        return taken;
    }

    // Groups, as an administrator sees them

    Object groups(String verb, JsonNode ask) throws Exception {
        String group = ask.path("group").asText();
        return switch (verb) {
            case "list_groups" -> admin.listGroups().all().get().stream().collect(Collectors.toMap(GroupListing::groupId,
                    each -> List.of(each.type().orElseThrow().toString(), each.groupState().orElseThrow().toString(), each.protocol())));
            case "describe_group" -> {
                ConsumerGroupDescription seen = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
                yield Map.of("type", seen.type().toString(), "state", seen.groupState().toString(), "assignor", seen.partitionAssignor(),
                        "members", seen.members().stream().map(each -> pair(each.clientId(), Member.numbers(each.assignment().topicPartitions()))).toList());
            }
            case "describe_classic_group" -> {
                ClassicGroupDescription seen = admin.describeClassicGroups(List.of(group)).all().get().get(group);
                yield pair(seen.state().toString(), seen.protocolData());
            }
            case "describe_share_group" -> {
                ShareGroupDescription seen = admin.describeShareGroups(List.of(group)).all().get().get(group);
                yield pair(seen.groupState().toString(), seen.members().stream()
                        .map(each -> Member.numbers(each.assignment().topicPartitions())).toList());
            }
            case "share_offsets" -> admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo(group).get().entrySet().stream()
                    .map(each -> List.of(each.getKey().topic(), each.getKey().partition(), each.getValue().startOffset(),
                            each.getValue().lag().orElse(-1L))).toList();
            case "alter_share_offsets" -> admin.alterShareGroupOffsets(group, offsets(ask).entrySet().stream()
                    .collect(Collectors.toMap(Map.Entry::getKey, each -> each.getValue().offset()))).all().get();
            case "delete_share_offsets" ->
                admin.deleteShareGroupOffsets(group, Set.of(ask.get("topic").asText())).all().get();
            case "delete_share_group" -> admin.deleteShareGroups(List.of(group)).all().get();
            case "group_offsets" -> written(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get());
            case "alter_group_offsets" -> admin.alterConsumerGroupOffsets(group, offsets(ask)).all().get();
            case "delete_group_offsets" -> admin.deleteConsumerGroupOffsets(group, Set.copyOf(partitions(ask))).all().get();
            case "delete_group" -> admin.deleteConsumerGroups(List.of(group)).all().get();
            case "remove_members" ->
                admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all().get();
            default -> throw new IllegalArgumentException(verb);
        };
    }

    // From JSON and to JSON

    Properties settings(JsonNode ask) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", broker);
        settings.putAll(texts(ask.path("settings")));
        return settings;
    }

    static Map<String, String> texts(JsonNode object) {
        Map<String, String> texts = new HashMap<>();
        object.properties().forEach(each -> texts.put(each.getKey(), each.getValue().asText()));
        return texts;
    }

    /** `[[topic, partition], ...]` */
    static List<TopicPartition> partitions(JsonNode ask) {
        return list(ask.get("partitions")).stream()
                .map(each -> new TopicPartition(each.get(0).asText(), each.get(1).asInt())).toList();
    }

    /** `[[topic, partition, offset, metadata], ...]`, the metadata where there is some. */
    static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode ask) {
        return list(ask.get("offsets")).stream().collect(Collectors.toMap(
                each -> new TopicPartition(each.get(0).asText(), each.get(1).asInt()),
                each -> new OffsetAndMetadata(each.get(2).asLong(), each.path(3).asText(""))));
    }

    static Map<String, Object> written(Map<TopicPartition, OffsetAndMetadata> offsets) {
        Map<String, Object> written = new HashMap<>();
        offsets.forEach((at, kept) -> written.put(at.toString(), kept == null ? null : List.of(kept.offset(), kept.metadata())));
        return written;
    }

    static List<JsonNode> list(JsonNode array) {
        return array == null ? List.of() : StreamSupport.stream(array.spliterator(), false).toList();
    }

    static List<Object> pair(Object first, Object second) {
        List<Object> pair = new ArrayList<>();
        pair.add(first);
        pair.add(second);
        return pair;
    }

    static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : text.asText().getBytes(StandardCharsets.ISO_8859_1);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.ISO_8859_1);
    }
}
