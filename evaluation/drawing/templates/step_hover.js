// What a box of a step's chart says. Arguments: table (a source of all boxes, tagged with its words), unit; `value` is a box's row.
const [words] = table.tags;
const at = (column) => table.data[column][value];
const number = (x) => (x === 0 ? "0" : x.toPrecision(4).replace(/\.?0+$/, "").replace(/e\+?/, "e"));
const time = (x) => `${number(x)} ${unit}`;
const size = (x) => {
  for (const [name, scale] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (x >= scale) return `${(x / scale).toFixed(1)} ${name}`;
  }
  return `${x.toFixed(0)} B`;
};
const name = (module, op) => (words.modules[module] ? `${words.modules[module]}/${words.ops[op]}` : words.ops[op]);
const label = (row) => (row >= 0 ? `${words.labels[row]}, ` : "");

function why() {
  if (value < 0) return "nothing is left for it to run";
  const waited = time(at("waited"));
  const awaited = at("awaited_op") < 0 ? "" : label(at("awaited_label")) + name(at("awaited_module"), at("awaited_op"));
  const where = at("awaited_device") < 0 ? "" : ` of ${words.devices[at("awaited_device")]}`;
  const said = { waited, awaited, where };
  return words.reasons[at("reason")].replace(/\{(\w+)\}/g, (_, name) => said[name]);
}

switch (format) {
  case "what": {
    const pass = label(at("label"));
    const many = at("count") > 1 ? `, ${at("count")} together, the longest:` : ":";
    return `${pass}${words.kinds[at("kind")]}${many} ${words.ops[at("op")]}`;
  }
  case "module":
    return words.modules[at("module")] || "the model itself";
  case "where":
    return words.lanes[at("lane")];
  case "time": {
    const busy = at("busy") / (at("finish") - at("start"));
    const share = busy < 0.995 && at("count") > 1 ? `, busy for ${(100 * busy).toFixed(0)}% of it` : "";
    return `${number(at("start"))} to ${time(at("finish"))}, ${time(at("finish") - at("start"))} long${share}`;
  }
  case "bytes":
    return size(at("bytes"));
  case "size":
    return size(value);
  case "idle":
    return time(value);
  default:
    return why();
}
