// The bank's service: users log in, read accounts, add amounts; the data is in Redis. One process of the `node` tier.
//
// node bank.js ADDRESS PORT REDIS_ADDRESS REDIS_PORT KEEP_ALIVE_MS ACCOUNTS [create]
//
// Each answer has its own times: `Server-Timing: app;dur=MS, redis;dur=MS`. `redis` is the time from a command's
// sending until its reply was read, and part of `app`. The process that is started with `create` creates the accounts
// before it listens.
"use strict";

const crypto = require("node:crypto");
const http = require("node:http");
const net = require("node:net");

const MAX_BODY_BYTES = 65536;
const SESSION_S = 3600;
const OPENING_BALANCE = 1000;
const SEEDED_AT_ONCE = 1000;

// Reads replies of RESP2 from a stream of bytes. Strings and errors are text, integers numbers, nil is null.
class ReplyReader {
  constructor() {
    this.bytes = Buffer.alloc(0);
  }

  // The complete replies of what has arrived so far.
  take(chunk) {
    this.bytes = this.bytes.length ? Buffer.concat([this.bytes, chunk]) : chunk;
    const replies = [];
    let at = 0;
    for (let found; (found = this.parse(at)) !== null; at = found.end) replies.push(found.value);
    this.bytes = this.bytes.subarray(at);
    return replies;
  }

  parse(at) {
    const line = this.bytes.indexOf("\r\n", at);
    if (line < 0) return null;
    const text = this.bytes.toString("utf8", at + 1, line);
    const kind = String.fromCharCode(this.bytes[at]);
    let end = line + 2;
    if (kind === "+") return { value: text, end };
    if (kind === "-") return { value: new Error(text), end };
    if (kind === ":") return { value: Number(text), end };
    const count = Number(text);
    if (count < 0) return { value: null, end };
    if (kind === "$") {
      if (this.bytes.length < end + count + 2) return null;
      return { value: this.bytes.toString("utf8", end, end + count), end: end + count + 2 };
    }
    if (kind !== "*") throw new Error(`not a reply of Redis: ${kind}`);
    const items = [];
    for (let index = 0; index < count; index += 1) {
      const item = this.parse(end);
      if (item === null) return null;
      items.push(item.value);
      end = item.end;
    }
    return { value: items, end };
  }
}

// One connection to Redis, on which commands of several requests are under way at a time.
class Redis {
  constructor(host, port, onReady) {
    this.waiting = [];
    const reader = new ReplyReader();
    this.socket = net.connect({ host, port, noDelay: true }, onReady);
    this.socket.on("data", (chunk) => {
      for (const reply of reader.take(chunk)) this.answer(reply);
    });
    this.socket.on("error", (error) => fail(`redis: ${error.message}`));
    this.socket.on("close", () => fail("redis: the connection was closed"));
  }

  // Sends commands at once; `done` gets their replies.
  send(commands, done) {
    this.waiting.push({ left: commands.length, replies: [], done });
    this.socket.write(commands.map(encode).join(""));
  }

  answer(reply) {
    const first = this.waiting[0];
    first.replies.push(reply);
    first.left -= 1;
    if (first.left === 0) this.waiting.shift().done(first.replies);
  }
}

function encode(words) {
  const parts = words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`);
  return `*${words.length}\r\n${parts.join("")}`;
}

function fail(message) {
  process.stderr.write(`error: ${message}\n`);
  process.exit(1);
}

// A request on its way: its times, and its answer.
class Exchange {
  constructor(redis, request, response) {
    this.begin = process.hrtime.bigint();
    this.redisNs = 0n;
    this.redis = redis;
    this.request = request;
    this.response = response;
  }

  ask(commands, done) {
    const sent = process.hrtime.bigint();
    this.redis.send(commands, (replies) => {
      this.redisNs += process.hrtime.bigint() - sent;
      const error = replies.find((reply) => reply instanceof Error);
      if (error !== undefined) this.answer(500, { error: error.message });
      else done(...replies);
    });
  }

  answer(status, document) {
    const body = JSON.stringify(document);
    const appNs = process.hrtime.bigint() - this.begin;
    this.response.writeHead(status, {
      "Content-Type": "application/json",
      "Content-Length": Buffer.byteLength(body),
      "Server-Timing": `app;dur=${milliseconds(appNs)}, redis;dur=${milliseconds(this.redisNs)}`,
    });
    this.response.end(body);
  }

  // The fields of a form or of a JSON object; an empty object where the body is neither.
  readFields(done) {
    const chunks = [];
    let length = 0;
    this.request.on("data", (chunk) => {
      length += chunk.length;
      if (length <= MAX_BODY_BYTES) chunks.push(chunk);
    });
    this.request.on("end", () => {
      if (length > MAX_BODY_BYTES) this.answer(413, { error: "the body is too long" });
      else done(fieldsOf(Buffer.concat(chunks).toString("utf8"), this.request.headers["content-type"] || ""));
    });
  }

  get token() {
    return (this.request.headers.authorization || "").replace(/^Bearer /, "");
  }
}

function milliseconds(ns) {
  return (Number(ns) / 1e6).toFixed(3);
}

function fieldsOf(body, type) {
  if (!type.startsWith("application/json")) return Object.fromEntries(new URLSearchParams(body));
  try {
    const read = JSON.parse(body);
    return typeof read === "object" && read !== null ? read : {};
  } catch {
    return {};
  }
}

function logIn(exchange, accounts) {
  exchange.readFields(({ user, password }) => {
    if (!user || !password) return exchange.answer(401, { error: "user and password are missing" });
    const token = crypto.randomBytes(16).toString("hex");
    const own = 1 + (crypto.createHash("sha1").update(String(user)).digest().readUInt32BE(0) % accounts);
    exchange.ask([["SET", `session:${token}`, user, "EX", SESSION_S]], () =>
      exchange.answer(200, { token, account: own }),
    );
  });
}

function readAccount(exchange, id) {
  const commands = [
    ["GET", `session:${exchange.token}`],
    ["HGETALL", `account:${id}`],
  ];
  exchange.ask(commands, (user, fields) => {
    if (user === null) exchange.answer(401, { error: "log in first" });
    else if (fields.length === 0) exchange.answer(404, { error: "no such account" });
    else exchange.answer(200, { account: Number(id), owner: fields[1], balance: Number(fields[3]) });
  });
}

function addAmount(exchange) {
  exchange.readFields(({ account, amount }) => {
    if (!/^[0-9]{1,9}$/.test(String(account)) || !/^-?[0-9]{1,9}$/.test(String(amount))) {
      return exchange.answer(400, { error: "account and amount are whole numbers" });
    }
    exchange.ask([["GET", `session:${exchange.token}`]], (user) => {
      if (user === null) return exchange.answer(401, { error: "log in first" });
      exchange.ask([["HINCRBY", `account:${account}`, "balance", amount]], (balance) =>
        exchange.answer(200, { account: Number(account), balance }),
      );
    });
  });
}

function serve(redis, accounts, request, response) {
  const exchange = new Exchange(redis, request, response);
  const { method, url } = request;
  const account = /^\/accounts\/([0-9]{1,9})$/.exec(url);
  if (method === "POST" && url === "/login") logIn(exchange, accounts);
  else if (method === "POST" && url === "/add") addAmount(exchange);
  else if (method === "GET" && account !== null) readAccount(exchange, account[1]);
  else if (method === "GET" && url === "/") exchange.ask([["PING"]], (reply) => exchange.answer(200, { redis: reply }));
  else exchange.answer(404, { error: "there is GET /, POST /login, GET /accounts/ID and POST /add" });
}

function seed(redis, from, accounts, done) {
  if (from > accounts) return done();
  const commands = [];
  for (let id = from; id <= accounts && commands.length < SEEDED_AT_ONCE; id += 1) {
    commands.push(["HSET", `account:${id}`, "owner", `user${id}`, "balance", OPENING_BALANCE]);
  }
  redis.send(commands, () => seed(redis, from + commands.length, accounts, done));
}

function main([address, port, redisAddress, redisPort, keepAliveMs, accounts, creates]) {
  const known = Number(accounts);
  const redis = new Redis(redisAddress, Number(redisPort), () => {
    const server = http.createServer((request, response) => serve(redis, known, request, response));
    server.keepAliveTimeout = Number(keepAliveMs);
    server.headersTimeout = Number(keepAliveMs) + 1000;
    server.requestTimeout = 0;
    server.on("error", (error) => fail(error.message));
    seed(redis, 1, creates === "create" ? known : 0, () => server.listen(Number(port), address));
  });
  process.on("SIGTERM", () => process.exit(0));
}

main(process.argv.slice(2));
