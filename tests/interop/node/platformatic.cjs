/* @platformatic/kafka, told what to do by a test in Python: node platformatic.cjs HOST:PORT, with NODE_PATH set. */
"use strict";

const { pathToFileURL } = require("node:url");
const { Inbox, bytes, serve } = require("./lines.cjs");

const consumers = new Map();

/** JSON has no whole numbers of 64 bits; these fields are such. */
const withBigints = (argument) =>
  JSON.parse(JSON.stringify(argument ?? {}), (key, value) =>
    ["offset", "timestamp"].includes(key) && value !== null ? BigInt(value) : value);

async function main() {
  const { Admin, Consumer, Producer, compressionsAlgorithms } = await import(
    pathToFileURL(require.resolve("@platformatic/kafka"))
  );
  const connection = { clientId: "interop", bootstrapBrokers: [process.argv[2]], retryDelay: 50, retries: 5 };
  const admin = new Admin(connection);

  async function produce({ topic, records, codec = "none", acks = -1, idempotent = false }) {
    const producer = new Producer({ ...connection, autocreateTopics: true });
    const messages = records.map(({ key, value, partition, timestamp, headers = [] }) => ({
      topic,
      partition,
      key: bytes(key) ?? undefined,
      value: bytes(value) ?? undefined,
      timestamp: timestamp === undefined ? undefined : BigInt(timestamp),
      headers: new Map(headers.map(([header, text]) => [bytes(header), bytes(text)])),
    }));
    try {
      const kept = await producer.send({ messages, compression: codec, acks, idempotent });
      return kept.offsets?.map(({ partition, offset }) => [partition, Number(offset)]);
    } finally {
      await producer.close();
    }
  }

  /** A member of its group from now on; what it is given waits to be polled. */
  async function open({ name, topic, settings, mode = "committed", offsets }) {
    const consumer = new Consumer({ ...connection, ...settings });
    const inbox = new Inbox();
    const stream = await consumer.consume({
      topics: [topic],
      mode,
      fallbackMode: "earliest",
      offsets: offsets?.map(withBigints),
      autocommit: false,
      maxWaitTime: 50,
      heartbeatInterval: 200,
      sessionTimeout: 10_000,
    });
    stream.on("data", ({ topic, partition, offset, timestamp, key, value, headers }) =>
      inbox.put([{ topic, partition, offset, timestamp, key, value, headers: [...headers] }]));
    consumers.set(name, { consumer, inbox, stream });
  }

  async function close({ name }) {
    const { consumer, stream } = consumers.get(name);
    consumers.delete(name);
    await stream.close();
    await consumer.close();
  }

  await serve({
    produce,
    open,
    close,
    codecs: async () => Object.entries(compressionsAlgorithms).filter(([, each]) => each.available).map(([name]) => name),
    poll: ({ name }) => consumers.get(name).inbox.poll(100),
    assignment: async ({ name }) =>
      (consumers.get(name).consumer.assignments ?? []).flatMap(({ partitions }) => partitions).sort(),
    commit: ({ name, offsets }) => consumers.get(name).consumer.commit({ offsets: offsets.map(withBigints) }),
    committed: ({ name, topic }) =>
      consumers.get(name).consumer.listCommittedOffsets({ topics: [{ topic, partitions: [0] }] }),
    metadata: ({ topic }) => admin.metadata({ topics: [topic], forceUpdate: true }),
    admin: ({ call, argument }) => admin[call](withBigints(argument)),
    end: async () => {
      for (const name of [...consumers.keys()]) await close({ name });
      await admin.close();
    },
  });
}

main();
