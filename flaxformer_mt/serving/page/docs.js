// The OpenAPI document as a page.

import { get } from "./api.js";
import { setUpTheme } from "./theme.js";

const page = document.getElementById("document");
let described = null;

function make(tag, attributes = {}, ...children) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children);
  return element;
}

const resolved = (schema) =>
  schema?.$ref ? described.components.schemas[schema.$ref.split("/").at(-1)] : schema;

const TYPES = {
  string: "text",
  integer: "whole number",
  number: "number",
  boolean: "true or false",
  object: "object",
  null: "null",
};

// A schema in a few words: "text", "list of text", "1 to 4", "one of: a, b".
function words(schema) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map(words).join(", or ");
  if (schema.enum) return schema.enum.join(" | ");
  if ("const" in schema) return schema.const;
  if (schema.type === "array") return `list of ${words(schema.items)}`;
  const bounds = "maximum" in schema ? ` ${schema.minimum} to ${schema.maximum}` : "";
  const length = "maxLength" in schema ? ` up to ${schema.maxLength} characters` : "";
  const start = (schema.default ?? "") !== "" ? `, default ${schema.default}` : "";
  return `${TYPES[schema.type] ?? "anything"}${bounds}${length}${start}`;
}

function fields(name, schema) {
  const properties = Object.entries(schema.properties ?? {}).filter(([, value]) => value !== false);
  const rows = properties.map(([key, value]) =>
    make(
      "tr",
      {},
      make("td", { textContent: key + (schema.required?.includes(key) ? " *" : "") }),
      make("td", { textContent: words(value) }),
      make("td", { textContent: value.description ?? "" }),
    ),
  );
  return [make("h3", { textContent: name }), make("table", {}, make("tbody", {}, ...rows))];
}

// Every named schema that a schema is made of, in order, each once.
function named(schema, found = new Map()) {
  if (schema === null || typeof schema !== "object") return found;
  if (typeof schema.$ref === "string") {
    const name = schema.$ref.split("/").at(-1);
    if (!found.has(name)) {
      found.set(name, resolved(schema));
      named(resolved(schema), found);
    }
    return found;
  }
  for (const part of Object.values(schema)) named(part, found);
  return found;
}

function curl(method, path, example) {
  const address = new URL(`.${path}`, new URL("./", location.href)).href;
  if (method === "get") return `curl ${address}`;
  const body = JSON.stringify(example).replaceAll("'", "'\\''");
  return `curl ${address} \\\n  -H 'Content-Type: application/json' \\\n  -d '${body}'`;
}

function operation(path, method, details) {
  const content = details.requestBody?.content["application/json"];
  const examples = content ? Object.values(content.examples).map((each) => each.value) : [null];
  const schemas = [
    ...named(content?.schema ?? {}),
    ...named(details.responses["200"].content["application/json"]?.schema ?? {}),
  ];
  const answers = Object.entries(details.responses).map(([status, answer]) =>
    make("tr", {}, make("td", { textContent: status }), make("td", { textContent: answer.description })),
  );
  return make(
    "section",
    { className: "card" },
    make(
      "h2",
      { className: "address" },
      make("span", { className: `method ${method}`, textContent: method.toUpperCase() }),
      path,
    ),
    make("p", { textContent: details.summary }),
    ...examples.map((example) => make("pre", { textContent: curl(method, path, example), tabIndex: 0 })),
    ...schemas.flatMap(([name, schema]) => fields(name, schema)),
    make("h3", { textContent: "Answers" }),
    make("table", {}, make("tbody", {}, ...answers)),
  );
}

setUpTheme(document.getElementById("theme"));
try {
  described = await get("openapi.json");
  document.title = `API · ${described.info.title}`;
  page.replaceChildren(
    make("h1", { className: "title", textContent: described.info.title }),
    make("p", { className: "quiet", textContent: described.info.description }),
    ...Object.entries(described.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, details]) => operation(path, method, details)),
    ),
  );
} catch (error) {
  page.replaceChildren(make("p", { className: "bad", textContent: error.message }));
}
