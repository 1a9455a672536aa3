// Translates with the model in this file's folder, one sentence per line:
//
//     node translate.mjs < source.txt > target.txt
//
// Needs Node and the npm package @browsermt/bergamot-translator 0.4.9, in node_modules/ of this
// folder or one above, or of the current folder. That version can't be imported in Node: its worker
// is CommonJS in a package of ES modules. So the worker's file is read and run as CommonJS here.
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

const ENGINE = "node_modules/@browsermt/bergamot-translator/worker/translator-worker.js";
const BATCH = 64;
const folder = dirname(fileURLToPath(import.meta.url));

function engineFile() {
  for (const start of [folder, process.cwd()]) {
    for (let place = resolve(start); ; place = dirname(place)) {
      const file = join(place, ENGINE);
      if (existsSync(file)) return file;
      if (place === dirname(place)) break;
    }
  }
  console.error("the engine is missing: npm install @browsermt/bergamot-translator@0.4.9");
  process.exit(1);
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
  worker.on("error", (error) => {
    console.error(`the engine failed: ${error.message ?? error}`);
    process.exit(1);
  });
  const call = (name, ...args) =>
    new Promise((accept, reject) => {
      waiting.set(++last, { accept, reject });
      worker.postMessage({ id: last, name, args });
    });
  return { worker, call };
}

function bytes(name) {
  const content = readFileSync(join(folder, name));
  return content.buffer.slice(content.byteOffset, content.byteOffset + content.byteLength);
}

function inputLines() {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(0));
  } catch {
    console.error("the input is not UTF-8 text");
    process.exit(1);
  }
  const lines = text.split("\n").map((line) => line.replace(/\r$/, ""));
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

async function main() {
  const settings = JSON.parse(readFileSync(join(folder, "settings.json"), "utf8"));
  const { from, to } = settings;
  const lines = inputLines();
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

main().catch((error) => {
  console.error(`the engine failed: ${error.message}`);
  process.exit(1);
});
