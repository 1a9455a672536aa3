// Translates with the model in this file's folder, one sentence per line:
//
//     node translate.mjs < source.txt > target.txt
//
// Needs Node and the npm package @browsermt/bergamot-translator 0.4.9, in node_modules/ of this
// folder or one above, or of the current folder. That version can't be imported in Node: its worker
// is CommonJS in a package of ES modules. So the worker's file is read and run as CommonJS here.
import { existsSync, fstatSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

const ENGINE = "node_modules/@browsermt/bergamot-translator/worker/translator-worker.js";
const BATCH = 64;
const folder = dirname(fileURLToPath(import.meta.url));

function fail(message) {
  console.error(message);
  process.exit(1);
}

function engineFile() {
  for (const start of [folder, process.cwd()]) {
    for (let place = resolve(start); ; place = dirname(place)) {
      const file = join(place, ENGINE);
      if (existsSync(file)) return file;
      if (place === dirname(place)) break;
    }
  }
  fail("the engine is missing: npm install @browsermt/bergamot-translator@0.4.9");
}

function startWorker(file) {
  const places = { __dirname: dirname(file), __filename: file };
  const source = `Object.assign(globalThis, ${JSON.stringify(places)});\n${readFileSync(file, "utf8")}`;
  const worker = new Worker(source, { eval: true, stderr: true });
  const waiting = new Map();
  let last = 0;
  worker.on("message", ({ id, result, error }) => {
    const { accept, reject } = waiting.get(id);
    waiting.delete(id);
    if (error) reject(new Error(error.message));
    else accept(result);
  });
  worker.on("error", (error) => fail(`the engine failed: ${error.message ?? error}`));
  const call = (name, ...args) =>
    new Promise((accept, reject) => {
      waiting.set(++last, { accept, reject });
      worker.postMessage({ id: last, name, args });
    });
  return { worker, call };
}

function content(name) {
  const file = join(folder, name);
  try {
    return readFileSync(file);
  } catch (error) {
    fail(`${file}: can't be read: ${error.message}`);
  }
}

function bytes(name) {
  const { buffer, byteOffset, byteLength } = content(name);
  return buffer.slice(byteOffset, byteOffset + byteLength);
}

async function inputLines() {
  if (fstatSync(0).isDirectory()) fail("the input is a folder"); // Node reads it as empty
  const parts = [];
  try {
    for await (const part of process.stdin) parts.push(part);
  } catch (error) {
    fail(`the input can't be read: ${error.message}`);
  }
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(parts));
  } catch {
    fail("the input is not UTF-8 text");
  }
  const lines = text.split("\n").map((line) => line.replace(/\r$/, ""));
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

async function main() {
  const settings = JSON.parse(content("settings.json"));
  const { from, to } = settings;
  const lines = await inputLines();
  const { worker, call } = startWorker(engineFile());
  await call("initialize", {});
  await call("loadTranslationModel", { from, to }, {
    model: bytes(settings.model),
    shortlist: new ArrayBuffer(0),
    vocabs: settings.vocabs.map(bytes),
    qualityModel: null,
    config: { ...settings.config, "ssplit-mode": "sentence" },
  });
  for (let start = 0; start < lines.length; start += BATCH) {
    const texts = lines
      .slice(start, start + BATCH)
      .map((text) => ({ text, html: false, qualityScores: false }));
    const outputs = await call("translate", { models: [{ from, to }], texts });
    process.stdout.write(outputs.map(({ target }) => `${target.text}\n`).join(""));
  }
  await worker.terminate();
}

// A reader such as `head` may stop early.
process.stdout.on("error", (error) => (error.code === "EPIPE" ? process.exit() : fail(error.message)));
main().catch((error) => fail(`the engine failed: ${error.message}`));
