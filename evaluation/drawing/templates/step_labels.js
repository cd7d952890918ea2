// Writes names into the boxes of a step's chart that have room for them. Arguments: table (tagged with its words), shown (a source), figure.
const [words] = table.tags;
const width = figure.inner_width;
const { start, end } = figure.x_range;
const scale = width / (end - start);
const pale = ["forward"]; // white is legible on its colour
const found = { x: [], y: [], text: [], ink: [] };
const data = table.data;
const taken = new Map(); // of each lane, what is written there: transfers may overlap
for (let box = 0; width > 0 && box < data.start.length && found.x.length < 600; box++) {
  const from = Math.max(data.start[box], start);
  const until = Math.min(data.finish[box], end);
  const room = Math.floor(((until - from) * scale - 4) / 7);
  if (room < 2) continue;
  const pass = data.label[box];
  const name = pass >= 0 ? words.labels[pass] : data.count[box] > 1 ? `${data.count[box]} ×` : words.ops[data.op[box]];
  if (name.length > room && (room < 5 || pass >= 0)) continue;
  const middle = (from + until) / 2, half = (3.5 * Math.min(name.length, room)) / scale;
  const lane = taken.get(data.y[box]) ?? [];
  if (lane.some(([left, right]) => middle - half < right && middle + half > left)) continue;
  taken.set(data.y[box], [...lane, [middle - half, middle + half]]);
  found.x.push(middle);
  found.y.push(data.y[box]);
  found.text.push(name.length > room ? `${name.slice(0, room - 1)}…` : name);
  found.ink.push(pale.includes(words.kinds[data.kind[box]]) ? "#ffffff" : "#000000");
}
shown.data = found;
