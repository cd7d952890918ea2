// Draws the modules of a graph that are open, and answers clicks, searches and choices of colour.
// Arguments: tree (columns of all nodes), words, nodes, edges, labels (sources), figure, search, colours, said, key.
// To other code of the page it says "graph:chosen" of what is clicked on, and it takes "graph:choose", with an op, and
// "graph:devices", with the device of each op.
const MOST_EDGES = 3000; // drawn: more would only blacken the page
const ops = words.ops;
const at = tree.data;
const count = at.parent.length;
const self = (nodes.drawing ??= prepare());

function prepare() {
  const inside = Array.from({ length: count + 1 }, () => []); // the last is outside of all
  for (const node of at.order) inside[at.parent[node] < 0 ? count : at.parent[node]].push(node);
  const sums = {};
  for (const name of ["flops", "bytes", "seconds"]) sums[name] = Float64Array.from(at[name]);
  const size = new Int32Array(count).fill(0, 0).map((_, node) => (node < ops ? 1 : 0));
  for (let node = ops; node < count; node++) size[node] = 0;
  const upward = (node) => {
    const outer = at.parent[node];
    if (outer < 0) return;
    size[outer] += size[node];
    for (const total of Object.values(sums)) total[outer] += total[node];
  };
  for (let node = 0; node < ops; node++) upward(node);
  for (let node = count - 1; node >= ops; node--) upward(node);
  const mirrored = new Uint8Array(count); // the backward pass runs back, below the forward pass
  for (let node = ops; node < count; node++) {
    mirrored[node] = at.parent[node] < 0 ? words.stacked && words.names[at.name[node]] === words.backward : mirrored[at.parent[node]];
  }
  const mixed = Object.fromEntries(words.modes.map((mode) => [mode, blended(at[mode])]));
  document.addEventListener("graph:choose", ({ detail }) => choose(detail));
  document.addEventListener("graph:devices", ({ detail }) => recolour(detail));
  return { inside, sums, size, mixed, mirrored, open: new Set(), found: new Set(), selected: -1, box: new Float64Array(4 * count) };
}

function blended(of) { // of each node what all ops in it have, or -1
  const one = Int32Array.from({ length: count }, (_, node) => (node < ops ? of[node] : -2));
  const upward = (node) => {
    const outer = at.parent[node];
    if (outer >= 0) one[outer] = one[outer] === -2 || one[outer] === one[node] ? one[node] : -1;
  };
  for (let node = 0; node < ops; node++) upward(node);
  for (let node = count - 1; node >= ops; node--) upward(node);
  return one;
}

function recolour({ device, categories, palette }) {
  [words.categories.device, words.palette.device] = [categories, palette];
  self.mixed.device = blended(device);
  if (self.extent) draw();
}

function choose(op) { // opens the modules that it is in, and shows it
  if (self.selected === op) return;
  for (let outer = at.parent[op]; outer >= 0; outer = at.parent[outer]) self.open.add(outer);
  self.selected = op;
  draw();
  const [left, top, right, bottom] = self.box.subarray(4 * op, 4 * op + 4), { x_range: x, y_range: y } = figure;
  const isSeen = left >= x.start && right <= x.end && top >= Math.min(y.start, y.end) && bottom <= Math.max(y.start, y.end);
  const isLegible = (right - left) / (x.end - x.start) > LEAST / figure.inner_width;
  if (!isSeen || !isLegible) show(left - AROUND, top - AROUND / 2, right + AROUND, bottom + AROUND / 2);
}

function unfold() { // what a window has room for, the passes and then the largest first
  const waiting = [...self.inside[count]];
  const isPass = (node) => Number(words.stacked && at.parent[node] < 0);
  const wide = figure.inner_width / LEGIBLE, high = figure.inner_height / LEGIBLE;
  for (let tried = 0; waiting.length && tried < 60; tried++) {
    const node = waiting.sort((a, b) => isPass(b) - isPass(a) || (isPass(a) ? 0 : self.size[b] - self.size[a])).shift();
    if (node < ops || self.size[node] === 1) continue;
    const isFew = visible().length - self.open.size < 6;
    self.open.add(node);
    const [width, height] = measure(count);
    if (!isFew && (width > wide || height > high)) self.open.delete(node);
    else waiting.push(...self.inside[node]);
  }
}

const name = (node) => {
  const own = words.names[at.name[node]];
  const outer = at.parent[node];
  return outer >= ops && /^\d+$/.test(own) ? `${words.names[at.name[outer]]}.${own}` : own;
};
const path = (node) => {
  const parts = [];
  for (let outer = at.parent[node]; outer >= 0; outer = at.parent[outer]) parts.unshift(words.names[at.name[outer]]);
  return `${parts.join(".")}${parts.length ? (node < ops ? "/" : ".") : ""}${words.names[at.name[node]]}`;
};
const inModel = (node) => { // the path of a module without the pass
  const parts = [];
  for (let outer = node; outer >= ops; outer = at.parent[outer]) parts.unshift(words.names[at.name[outer]]);
  return parts.slice(Number(words.stacked)).join(".");
};
const scaled = (value, units) => {
  const [unit, scale] = units.find(([, each]) => value >= each) ?? units.at(-1);
  return `${(value / scale).toPrecision(3).replace(/\.?0+$/, "").replace(/e\+?/, "e")} ${unit}`;
};
const bytes = (value) => scaled(value, [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]]);
const flop = (value) => scaled(value, [["TFLOP", 1e12], ["GFLOP", 1e9], ["MFLOP", 1e6], ["kFLOP", 1e3], ["FLOP", 1]]);
const time = (value) => scaled(value, [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]]);

const LEGIBLE = 0.6; // the scale at which names fit their boxes
const isPhone = figure.inner_width < 700; // where even a training step continues below
const NARROW = 64, WIDE = 240, CHARACTER = 12, HIGH = 30, APART = 36, BETWEEN = 10, PAD = 16, TITLE = 22, TALLEST = 14, AROUND = 500, LEAST = 40, WIDEST = isPhone ? figure.inner_width / LEGIBLE : words.stacked ? 9000 : 2200;

const boxed = (node) => Math.min(Math.max(CHARACTER * name(node).length + 20, NARROW), WIDE); // its width

function measure(node) { // [width, height, columns] of a node, whose columns are lists of nodes
  if (node < ops || (node < count && !self.open.has(node))) return [boxed(node), HIGH, []];
  const columns = [];
  let layer = -1;
  const stacked = node === count && words.stacked;
  for (const each of self.inside[node]) {
    if (!columns.length || (!stacked && (at.layer[each] !== layer || columns.at(-1).length >= TALLEST))) columns.push([]);
    layer = at.layer[each];
    columns.at(-1).push(each);
  }
  const gap = stacked ? APART : BETWEEN;
  const bands = []; // a long chain continues below, as lines of text do
  for (const column of columns) {
    const each = column.map((child) => measure(child));
    const wide = Math.max(...each.map(([x]) => x));
    const high = each.reduce((sum, [, y]) => sum + y + gap, -gap);
    if (!bands.length || bands.at(-1).wide + wide > WIDEST) bands.push({ wide: -APART, high: 0, parts: [] });
    const band = bands.at(-1);
    band.parts.push({ column, each, wide, high });
    band.wide += wide + APART;
    band.high = Math.max(band.high, high);
  }
  if (self.mirrored[node]) for (const band of bands) band.parts.reverse();
  const edge = node === count ? 0 : PAD;
  const width = Math.max(...bands.map((band) => band.wide));
  const height = bands.reduce((sum, band) => sum + band.high + APART, -APART);
  return [width + 2 * edge, height + 2 * edge + (edge ? TITLE : 0), bands, gap];
}

function place(node, [width, height, bands, gap], x, y) { // y grows downward
  if (node < count) self.box.set([x, y, x + width, y + height], 4 * node);
  const edge = node === count ? 0 : PAD;
  let top = y + edge + (edge ? TITLE : 0);
  for (const band of bands) {
    let left = self.mirrored[node] ? x + width - edge - band.wide : x + edge;
    for (const { column, each, wide, high } of band.parts) {
      let down = top + (band.high - high) / 2;
      column.forEach((child, row) => {
        place(child, each[row], left + (wide - each[row][0]) / 2, down);
        down += each[row][1] + gap;
      });
      left += wide + APART;
    }
    top += band.high + APART;
  }
  return [width, height];
}

function visible() { // nodes to be drawn, outer ones first
  const found = [];
  const walk = (node) => {
    for (const each of self.inside[node]) {
      found.push(each);
      if (self.open.has(each)) walk(each);
    }
  };
  walk(count);
  return found;
}

function colour(node, most) {
  const mode = colours.value;
  if (words.modes.includes(mode)) return self.mixed[mode][node] < 0 ? "#b9bec5" : words.palette[mode][self.mixed[mode][node]];
  const share = most > 0 ? Math.sqrt(self.sums[mode][node] / most) : 0;
  return words.scale[Math.round(share * (words.scale.length - 1))];
}

function legend(most) {
  const swatch = (shade, text) => `<span style="white-space:nowrap;margin-right:1em"><i style="display:inline-block;` +
    `width:.85em;height:.85em;border-radius:2px;vertical-align:-1px;background:${shade}"></i> ${text}</span>`;
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const mode = colours.value;
  if (words.modes.includes(mode)) {
    const entries = words.categories[mode].map((text, row) => swatch(words.palette[mode][row], escaped(text)));
    return entries.join("") + swatch("#b9bec5", "several of these; open it to see which");
  }
  const write = mode === "seconds" ? time : mode === "flops" ? flop : bytes;
  const steps = [0, 0.25, 0.5, 0.75, 1].map((share) => words.scale[Math.round(share * (words.scale.length - 1))]);
  return `0 ${steps.map((shade) => swatch(shade, "")).join("")} ${most > 0 ? write(most) : ""}`;
}

function draw() {
  self.extent = place(count, measure(count), 0, 0);
  const drawn = visible();
  const closed = drawn.filter((node) => !self.open.has(node));
  const most = words.modes.includes(colours.value) ? 0 : Math.max(...closed.map((node) => self.sums[colours.value][node]));
  self.most = most;
  const kept = [nodes, frames].map(() => Object.fromEntries(words.columns.map((name) => [name, []])));
  for (const node of drawn) {
    const [left, top, right, bottom] = self.box.subarray(4 * node, 4 * node + 4);
    const isOpen = self.open.has(node), isMarked = self.found.has(node) || self.selected === node;
    const of = (mode, several) => self.mixed[mode]?.[node] >= 0 ? words.categories[mode][self.mixed[mode][node]] : several;
    const row = {
      node, left, right, top, bottom, fill: isOpen ? words.tint : colour(node, most), alpha: isOpen ? 0.6 : 1,
      line: isMarked ? words.ink : isOpen ? words.edge : words.paper, width: isMarked ? 3 : 1,
      what: node < ops ? of("kind", "op") : isOpen ? "module; its title folds it" : "module; a click opens it",
      path: path(node), holds: `${self.size[node].toLocaleString("en")} ${self.size[node] === 1 ? "op" : "ops"}`,
      work: flop(self.sums.flops[node]) + (words.timed ? `, ${time(self.sums.seconds[node])}` : ""),
      out: bytes(self.sums.bytes[node]), weights: bytes(at.weights[node]),
      place: `${of("pass", "several passes")}${self.mixed.device ? `, ${of("device", "several devices")}` : ""}`,
    };
    for (const column of words.columns) kept[isOpen ? 1 : 0][column].push(row[column]);
  }
  [nodes.data, frames.data] = kept;
  self.drawn = drawn;
  connect(closed);
  key.text = legend(most) + leftOut();
  write();
}

function leftOut() {
  if (!self.left) return "";
  const several = self.left === 1 ? "edge, which carries" : "edges, which carry";
  return `<br>${self.left.toLocaleString("en")} ${several} least, ${self.left === 1 ? "is" : "are"} left out; ` +
    "a click on an op draws all of its own, and a folded module has fewer.";
}

function connect(closed) {
  const stands = new Int32Array(count).fill(-1); // for each node the closed one that it is in
  for (const node of closed) stands[node] = node;
  for (let node = ops; node < count; node++) {
    const outer = at.parent[node];
    if (stands[node] < 0 && outer >= 0) stands[node] = stands[outer];
  }
  const pairs = new Map();
  const representative = (op) => (stands[op] >= 0 ? stands[op] : at.parent[op] >= 0 ? stands[at.parent[op]] : op);
  for (let edge = 0; edge < words.from.length; edge++) {
    const from = representative(words.from[edge]), to = representative(words.to[edge]);
    if (from === to) continue;
    const pair = from * count + to;
    const known = pairs.get(pair);
    if (known) { known[0] += words.carried[edge]; known[1] += 1; } else pairs.set(pair, [words.carried[edge], 1]);
  }
  const marked = ([pair]) => Number(Math.floor(pair / count) === self.selected || pair % count === self.selected);
  const list = [...pairs].sort((a, b) => marked(b) - marked(a) || b[1][0] - a[1][0]);
  self.left = Math.max(list.length - MOST_EDGES, 0);
  if (self.left) list.length = MOST_EDGES;
  const most = Math.max(1, ...list.map(([, [carried]]) => carried));
  const columns = { xs: [], ys: [], width: [], colour: [], alpha: [], said: [], carries: [] };
  for (const [pair, [carried, tensors]] of list) {
    const from = Math.floor(pair / count), to = pair % count;
    const a = self.box.subarray(4 * from, 4 * from + 4), b = self.box.subarray(4 * to, 4 * to + 4);
    const [xs, ys] = curve(a, b);
    const isMarked = self.selected === from || self.selected === to;
    columns.xs.push(xs); columns.ys.push(ys);
    columns.width.push(0.8 + 4 * Math.sqrt(carried / most));
    columns.colour.push(isMarked ? words.ink : "#8c929b");
    columns.alpha.push(isMarked ? 1 : 0.45);
    columns.said.push(`${path(from)} → ${path(to)}`);
    columns.carries.push(`${bytes(carried)} in ${tensors} ${tensors === 1 ? "edge" : "edges"}`);
  }
  edges.data = columns;
}

function curve([left, top, right, bottom], [toLeft, toTop, toRight, toBottom]) {
  const middle = (top + bottom) / 2, toMiddle = (toTop + toBottom) / 2;
  let points;
  if (toLeft >= right || toRight <= left) { // from the side that faces the other
    const [x0, x1] = toLeft >= right ? [right, toLeft] : [left, toRight];
    const bend = Math.sign(x1 - x0) * Math.max(20, Math.min(Math.abs(x1 - x0) / 2, 160));
    points = [[x0, middle], [x0 + bend, middle], [x1 - bend, toMiddle], [x1, toMiddle]];
  } else {
    const [y0, y1] = toTop >= bottom ? [bottom, toTop] : [top, toBottom];
    const x0 = (left + right) / 2, x1 = (toLeft + toRight) / 2, bend = (y1 - y0) / 2;
    points = [[x0, y0], [x0, y0 + bend], [x1, y1 - bend], [x1, y1]];
  }
  const steps = Array.from({ length: 15 }, (_, step) => step / 14);
  return [0, 1].map((axis) => steps.map((t) => {
    const u = 1 - t, [p, q, r, s] = points.map((point) => point[axis]);
    return u * u * u * p + 3 * u * u * t * q + 3 * u * t * t * r + t * t * t * s;
  }));
}

function write() { // names that have room at this zoom
  const { start, end } = figure.x_range;
  const scale = figure.inner_width / (end - start);
  const columns = { x: [], y: [], text: [], ink: [], align: [] };
  const [low, high] = [Math.min(figure.y_range.start, figure.y_range.end), Math.max(figure.y_range.start, figure.y_range.end)];
  const most = words.modes.includes(colours.value) ? 0 : self.most;
  for (const node of self.drawn) {
    if (columns.x.length >= 900) break;
    const [left, top, right, bottom] = self.box.subarray(4 * node, 4 * node + 4), isOpen = self.open.has(node);
    const from = Math.max(left, start), until = Math.min(right, end);
    if (until <= from || bottom < low || top > high) continue;
    const room = Math.floor((scale * (until - from) - 6) / 7);
    if (room < 3 || scale * (isOpen ? TITLE : HIGH) < 9) continue;
    const counted = `${name(node)} (${self.size[node]})`;
    const own = words.names[at.name[node]]; // of "layers.11" the number, rather than "lay…"
    const text = [isOpen || node < ops ? "" : counted, name(node), own].find((each) => each && each.length <= room) ?? name(node);
    columns.x.push(isOpen ? from + 6 / scale : (from + until) / 2);
    columns.y.push(isOpen ? top + TITLE / 2 + 2 : (top + bottom) / 2);
    columns.text.push(text.length > room ? `${text.slice(0, room - 1)}…` : text);
    columns.align.push(isOpen ? "left" : "center");
    columns.ink.push(isOpen ? words.ink : bright(colour(node, most)) ? "#000000" : "#ffffff");
  }
  labels.data = columns;
}

function bright(shade) {
  const [r, g, b] = [1, 3, 5].map((from) => parseInt(shade.slice(from, from + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 115;
}

function show(left, top, right, bottom) { // this part, with equal scales
  const width = figure.inner_width, height = figure.inner_height;
  if (!(width > 0 && height > 0)) return;
  const unit = Math.max((right - left + 40) / width, (bottom - top + 40) / height, 0.4);
  const x = (left + right) / 2, y = (top + bottom) / 2;
  figure.x_range.setv({ start: x - (unit * width) / 2, end: x + (unit * width) / 2 });
  figure.y_range.setv({ start: y + (unit * height) / 2, end: y - (unit * height) / 2 });
  write();
}

const all = () => show(0, 0, ...self.extent);

function find(text) {
  self.found = new Set();
  const wanted = text.trim().toLowerCase();
  if (wanted) {
    for (let node = 0; node < count; node++) if (path(node).toLowerCase().includes(wanted)) self.found.add(node);
    const first = [...self.found].filter((node) => words.names[at.name[node]].toLowerCase().includes(wanted));
    for (const node of (first.length ? first : [...self.found]).slice(0, 100)) {
      for (let outer = at.parent[node]; outer >= 0; outer = at.parent[outer]) self.open.add(outer);
    }
  }
  draw();
  const drawn = new Set(self.drawn), shown = [...self.found].filter((node) => drawn.has(node));
  const hidden = self.found.size - shown.length;
  said.text = wanted ? `${self.found.size.toLocaleString("en")} found${hidden > 0 ? `, ${hidden} of them in folded modules` : ""}` : "";
  if (!shown.length) return all();
  const boxes = shown.slice(0, 100).map((node) => self.box.subarray(4 * node, 4 * node + 4));
  show(...[0, 1].map((k) => Math.min(...boxes.map((box) => box[k]))), ...[2, 3].map((k) => Math.max(...boxes.map((box) => box[k]))));
}

function tap({ x, y }) {
  let hit = -1;
  self.drawn.forEach((node) => {
    const [left, top, right, bottom] = self.box.subarray(4 * node, 4 * node + 4);
    if (left <= x && x <= right && top <= y && y <= bottom) hit = node;
  });
  const anchor = hit >= 0 ? [self.box[4 * hit], self.box[4 * hit + 1]] : [0, 0];
  if (hit >= ops && !self.open.has(hit)) self.open.add(hit);
  else if (hit >= ops && y <= self.box[4 * hit + 1] + TITLE) self.open.delete(hit);
  else self.selected = hit >= 0 && hit < ops && self.selected !== hit ? hit : -1;
  draw();
  if (hit < 0) return;
  const module = inModel(hit < ops ? at.parent[hit] : hit), own = words.names[at.name[hit]];
  const chosen = self.selected < 0 ? "" : module ? `${module}/${own}` : own;
  document.dispatchEvent(new CustomEvent("graph:chosen", { detail: { name: chosen, module } }));
  const dx = self.box[4 * hit] - anchor[0], dy = self.box[4 * hit + 1] - anchor[1]; // what was clicked stays where it is
  figure.x_range.setv({ start: figure.x_range.start + dx, end: figure.x_range.end + dx });
  figure.y_range.setv({ start: figure.y_range.start + dy, end: figure.y_range.end + dy });
}

if (cb_obj.event_name === "tap") tap(cb_obj);
else if (cb_obj.event_name === "button_click") {
  if (cb_obj.model.name === "whole") all();
  else {
    self.open = new Set(cb_obj.model.name === "fold" ? self.inside[count].filter((node) => node >= ops) : []);
    if (cb_obj.model.name === "unfold") for (let node = ops; node < count; node++) self.open.add(node);
    draw();
    all();
  }
} else if (cb_obj === search) find(search.value);
else if (cb_obj === colours) draw();
else if (cb_obj === figure) {
  if (!self.extent) { unfold(); draw(); }
  all();
} else if (self.extent) write();
