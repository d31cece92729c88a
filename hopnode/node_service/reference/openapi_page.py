"""The page at `/docs`: lists the operations of `/openapi.json`. One file, no library, nothing from another host."""

import base64
import hashlib

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h2 { margin: 2rem 0 .5rem; border-bottom: 1px solid #8886; }
details { border: 1px solid #8884; border-radius: 6px; margin: .4rem 0; padding: .35rem .7rem; }
summary { cursor: pointer; }
summary b { display: inline-block; min-width: 4.2rem; font-family: ui-monospace, monospace; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { overflow: auto; background: #8882; padding: .6rem; border-radius: 6px; }
table { border-collapse: collapse; }
td, th { text-align: left; vertical-align: top; padding: .15rem .8rem .15rem 0; }
.note { opacity: .75; }
"""

_SCRIPT = """
const page = document.querySelector("main");
const make = (tag, text = "", children = []) => {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
};
const row = (tag, cells) => make("tr", "", cells.map((cell) => make(tag, cell)));
const table = (heads, rows) => make("table", "", [row("th", heads), ...rows.map((cells) => row("td", cells))]);
const typeOf = (schema = {}) => {
  if (schema.$ref) return schema.$ref.split("/").pop();
  const choices = schema.anyOf || schema.oneOf;
  if (choices) return choices.map(typeOf).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return typeOf(schema.items) + "[]";
  return schema.type || "any";
};
const resolve = (api, schema = {}) =>
  schema.$ref ? schema.$ref.slice(2).split("/").reduce((node, name) => node[name], api) : schema;
const fields = (api, schema) => {
  const found = resolve(api, schema);
  const needed = new Set(found.required || []);
  return Object.entries(found.properties || {}).map(([name, field]) =>
    [name + (needed.has(name) ? " *" : ""), typeOf(field), field.description || ""]);
};
const bodyOf = (api, body) => {
  const parts = [make("h4", "Body" + (body.description ? ": " + body.description : ""))];
  for (const [type, content] of Object.entries(body.content)) {
    const example = resolve(api, content.schema).example;
    parts.push(make("p", type), table(["field", "type", ""], fields(api, content.schema)));
    if (example) parts.push(make("pre", JSON.stringify(example, null, 2)));
  }
  return parts;
};
const answerType = (answer) => Object.values(answer.content || {}).map((content) => typeOf(content.schema)).join(", ");
const operation = (api, method, path, op) => {
  const parts = [make("p", op.description || "")];
  if (op.parameters) parts.push(make("h4", "Parameters"), table(["name", "in", "type", ""], op.parameters.map((p) =>
    [p.name + (p.required ? " *" : ""), p.in, typeOf(p.schema), p.description || ""])));
  if (op.requestBody) parts.push(...bodyOf(api, op.requestBody));
  parts.push(make("h4", "Answers"), table(["status", "body", ""], Object.entries(op.responses)
    .map(([status, answer]) => [status, resolve(api, answer)])
    .map(([status, answer]) => [status, answerType(answer), answer.description || ""])));
  const line = make("summary", "", [make("b", method.toUpperCase()), make("code", path), make("span", "  " + op.summary)]);
  const box = make("details", "", [line, ...parts]);
  box.id = op.operationId;
  return box;
};
const schemaBox = (api, name, schema) => {
  const box = make("details", "", [make("summary", "", [make("code", name)]), make("p", schema.description || ""),
    table(["field", "type", ""], fields(api, schema))]);
  return box;
};
const show = (api) => {
  page.replaceChildren(make("h1", api.info.title + " " + api.info.version), make("p", api.info.description));
  for (const tag of api.tags) {
    page.append(make("h2", tag.name), make("p", tag.description));
    for (const [path, methods] of Object.entries(api.paths))
      for (const [method, op] of Object.entries(methods))
        if (op.tags.includes(tag.name)) page.append(operation(api, method, path, op));
  }
  page.append(make("h2", "schemas"));
  for (const [name, schema] of Object.entries(api.components.schemas)) page.append(schemaBox(api, name, schema));
  if (location.hash) document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
};
fetch("openapi.json").then((answer) => answer.json()).then(show)
  .catch((error) => page.replaceChildren(make("p", "openapi.json cannot be read: " + error)));
"""

PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Hopnode API</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
</head>
<body>
<main><p>Reading <a href="openapi.json">openapi.json</a> …</p></main>
<script type="module">{_SCRIPT}</script>
</body>
</html>
"""


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: this one script and style, and requests to this node only."""
