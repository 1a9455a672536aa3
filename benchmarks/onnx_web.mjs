// A folder of ONNX graphs in ONNX Runtime's build for browsers, for `benchmarks.onnx_runtime`:
//
//     node onnx_web.mjs FOLDER < JSON         JSON on stdout
//
// FOLDER is where onnxruntime-web was installed. The question has the graphs' `folder`, the ids of `sources`,
// `limits`, each output's most tokens with its end mark, and the ids `start`, `end` and `never`. The answer has the
// greedy `outputs` without their end marks, and the package's `version`.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(path.join(path.resolve(process.argv[2]), "/"));
const ort = await import(pathToFileURL(require.resolve("onnxruntime-web")));
const question = JSON.parse(fs.readFileSync(0, "utf-8"));
const [encoder, decoder] = await Promise.all(
  ["encoder_model.onnx", "decoder_model_merged.onnx"].map((name) =>
    ort.InferenceSession.create(fs.readFileSync(path.join(question.folder, name)), {
      executionProviders: ["wasm"],
    }),
  ),
);
const caches = decoder.inputMetadata.filter(({ name }) => name.startsWith("past_key_values."));
const integers = (ids) => new ort.Tensor("int64", BigInt64Array.from(ids.map(BigInt)), [1, ids.length]);

function likeliest(logits) {
  let best = -1;
  for (let id = 0; id < logits.length; id++) {
    if (!question.never.includes(id) && (best < 0 || logits[id] > logits[best])) best = id;
  }
  return best;
}

async function translate(source, limit) {
  const mask = integers(source.map(() => 1));
  const encoded = await encoder.run({ input_ids: integers(source), attention_mask: mask });
  const shared = { encoder_attention_mask: mask, encoder_hidden_states: encoded.last_hidden_state };
  let cache = Object.fromEntries(
    caches.map(({ name, shape }) => [
      name,
      new ort.Tensor("float32", new Float32Array(0), [1, shape[1], 0, shape[3]]),
    ]),
  );
  const output = [];
  let token = question.start;
  while (output.length < limit - 1) {
    const uses_cache = new ort.Tensor("bool", [output.length > 0], [1]);
    const inputs = { input_ids: integers([token]), use_cache_branch: uses_cache };
    const step = await decoder.run({ ...inputs, ...shared, ...cache });
    token = likeliest(step.logits.data);
    if (token === question.end) break;
    output.push(token);
    cache = Object.fromEntries(
      caches.map(({ name }) => [name, step[name.replace("past_key_values", "present")]]),
    );
  }
  return output;
}

const outputs = [];
for (const [number, source] of question.sources.entries()) {
  outputs.push(await translate(source, question.limits[number]));
}
process.stdout.write(JSON.stringify({ outputs, version: ort.env.versions.web }));
