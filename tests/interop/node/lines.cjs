/*
 * Speaks with the test: a JSON object a line on standard input, an answer a line on standard output, and lines of events
 * from the members of flowing groups in between. Bytes are strings in latin-1.
 */
"use strict";

const readline = require("node:readline");

const bytes = (text) => (text === null || text === undefined ? null : Buffer.from(text, "latin1"));

function plain(key, value) {
  const raw = this[key]; // a Buffer comes here as an object of numbers already
  if (Buffer.isBuffer(raw)) return raw.toString("latin1");
  if (typeof raw === "bigint") return Number(raw);
  if (raw instanceof Map) return Object.fromEntries(raw);
  if (raw instanceof Set) return [...raw];
  return value;
}

const tell = (what) => process.stdout.write(`${JSON.stringify(what, plain)}\n`);

/** The error that names what the broker answered: clients wrap it in others. */
function innermost(error) {
  const inner = error.cause ?? error.errors?.[0] ?? error.groups?.[0]?.error;
  return inner instanceof Error ? innermost(inner) : error;
}

/** Until there is no more to read; `verbs` are asynchronous functions by name. */
async function serve(verbs) {
  tell({ answer: "ready" });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const ask = JSON.parse(line);
    try {
      tell({ number: ask.number, answer: (await verbs[ask.verb](ask)) ?? null });
    } catch (error) {
      const { type, apiId, name, message } = innermost(error);
      tell({ number: ask.number, error: type ?? apiId ?? name, message });
    }
  }
  await verbs.end();
}

/** What a consumer was given, until somebody polls. */
class Inbox {
  #records = [];
  #wake = () => {};

  put(records) {
    this.#records.push(...records);
    this.#wake();
  }

  async poll(milliseconds) {
    if (this.#records.length === 0) {
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, milliseconds);
      });
    }
    return this.#records.splice(0);
  }
}

module.exports = { Inbox, bytes, serve, tell };
