/* KafkaJS, told what to do by a test in Python: node kafkajs.cjs HOST:PORT, with NODE_PATH where its packages are. */
"use strict";

const zstd = require("@bokuweb/zstd-wasm");
const kafkajs = require("kafkajs");
const lz4 = require("lz4js");
const { Inbox, bytes, serve, tell } = require("./lines.cjs");

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;

// It has gzip of its own, and takes the others from packages.
const codec = (compress, decompress) => () => ({
  compress: async (encoder) => Buffer.from(compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(decompress(buffer)),
});
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
CompressionCodecs[CompressionTypes.LZ4] = codec(lz4.compress, lz4.decompress);
CompressionCodecs[CompressionTypes.ZSTD] = codec(zstd.compress, zstd.decompress);

const kafka = new Kafka({
  brokers: [process.argv[2]],
  clientId: "interop",
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 20, maxRetryTime: 200 },
});
const admin = kafka.admin();
const consumers = new Map();
const members = new Map();

async function produce({ topic, records, codec: name = "none", acks = -1, idempotent = false }) {
  const producer = kafka.producer({ idempotent, createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
  await producer.connect();
  const compression = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }[name];
  const messages = records.map(({ key, value, partition, timestamp, headers = {} }) => ({
    key: bytes(key),
    value: bytes(value),
    partition,
    timestamp: timestamp === undefined ? undefined : String(timestamp),
    headers: Object.fromEntries(Object.entries(headers).map(([header, values]) => [header, values.map(bytes)])),
  }));
  try {
    const kept = await producer.send({ topic, messages, acks, compression });
    return kept.map(({ partition, baseOffset }) => [partition, Number(baseOffset)]);
  } finally {
    await producer.disconnect();
  }
}

const newConsumer = (settings) =>
  kafka.consumer({ heartbeatInterval: 200, rebalanceTimeout: 5000, maxWaitTimeInMs: 50, ...settings });

/** A member of its group from now on; what it is given waits to be polled. */
async function open({ name, topic, pattern, settings, autoCommit = false }) {
  const consumer = newConsumer(settings);
  const inbox = new Inbox();
  consumers.set(name, { consumer, inbox });
  const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve));
  await consumer.connect();
  await consumer.subscribe({ topics: [pattern ? new RegExp(pattern) : topic], fromBeginning: true });
  await consumer.run({
    autoCommit,
    eachBatch: async ({ batch: { topic, partition, messages } }) =>
      inbox.put(messages.map(({ offset, timestamp, key, value, headers }) =>
        ({ topic, partition, offset: Number(offset), timestamp: Number(timestamp), key, value, headers }))),
  });
  return Object.values((await joined).payload.memberAssignment).flat();
}

/** Of a flowing group: commits what it read before it asks for more. Gives up everything at each rebalance. */
async function join({ name, topic, settings }) {
  const consumer = newConsumer(settings);
  let owned = [];
  const happened = (event, more) => tell({ event, member: name, ...more });
  const giveUp = () => {
    happened("revoked", { partitions: owned });
    owned = [];
  };
  members.set(name, { consumer, giveUp });
  consumer.on(consumer.events.REBALANCING, giveUp);
  consumer.on(consumer.events.CRASH, ({ payload }) => happened("failed", { error: String(payload.error) }));
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    giveUp();
    owned = payload.memberAssignment[topic] ?? [];
    happened("assigned", { partitions: owned });
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      const { partition, messages } = batch;
      happened("read", { values: messages.map(({ value }) => [partition, value]) });
      try {
        await consumer.commitOffsets([{ topic, partition, offset: String(Number(batch.lastOffset()) + 1) }]);
        happened("kept", { partitions: [partition] });
      } catch (error) {
        happened("refused", { error: error.type ?? error.name });
        throw error;
      }
    },
  });
}

async function leave({ name }) {
  const { consumer, giveUp } = members.get(name);
  members.delete(name);
  await consumer.disconnect();
  giveUp();
}

const verbs = {
  produce,
  open,
  join,
  leave,
  poll: ({ name }) => consumers.get(name).inbox.poll(100),
  seek: async ({ name, topic, partition, offset }) =>
    consumers.get(name).consumer.seek({ topic, partition, offset: String(offset) }),
  commit: ({ name, offsets }) => consumers.get(name).consumer.commitOffsets(offsets),
  close: async ({ name }) => {
    await consumers.get(name).consumer.disconnect();
    consumers.delete(name);
  },
  offsets_by_time: ({ topic, timestamp }) => admin.fetchTopicOffsetsByTimestamp(topic, timestamp),
  admin: ({ call, argument }) => admin[call](argument),
  end: async () => {
    await Promise.all([...consumers.values()].map(({ consumer }) => consumer.disconnect()));
    await admin.disconnect();
  },
};

zstd.init().then(() => admin.connect()).then(() => serve(verbs));
