// Asks the server for steps and ops, and shows them: graph, plan, timeline and memory answer each other's clicks.
(() => {
  const { modules, step: first } = JSON.parse(document.getElementById("known").textContent);
  const at = (id) => document.getElementById(id);
  const inside = modules.paths.map(() => []);
  modules.parent.forEach((outer, module) => outer >= 0 && inside[outer].push(module));
  const rows = new Map(); // of modules that are shown
  let step = first, op = null, timeline = null, enlarged = null, waiting = false;

  function make(tag, attributes = {}, ...content) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== false && value != null) element.setAttribute(name, value);
    }
    element.append(...content);
    return element;
  }

  const token = new URLSearchParams(location.search).get("token");

  function addressed(path) { // with the token, without which the server answers nobody
    const address = new URL(path, location.origin);
    address.searchParams.set("token", token);
    return address;
  }

  async function asked(path, body) {
    const sent = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    let response;
    try {
      response = await fetch(addressed(path), body === undefined ? {} : sent);
    } catch {
      throw new Error("The server does not answer: placelab open has ended.");
    }
    if (!response.ok) throw new Error((await response.json()).error);
    return response;
  }

  const ask = async (path, body) => (await asked(path, body)).json();

  function say(sentences, isBad = false) {
    at("message").className = isBad ? "bad" : "";
    at("message").replaceChildren(...sentences.map((sentence) => make("p", {}, sentence)));
  }

  async function change(doing, work) { // what takes a while, one at a time
    if (waiting) return;
    waiting = true;
    const begin = performance.now();
    const every = setInterval(() => say([`${doing} … ${((performance.now() - begin) / 1000).toFixed(0)} s`]), 1000);
    for (const each of document.querySelectorAll("button, #modules select, #op select")) each.disabled = true;
    try {
      await work();
    } catch (error) {
      clearInterval(every);
      say([error.message], true);
    } finally {
      clearInterval(every);
      waiting = false;
      for (const each of document.querySelectorAll("button, select")) each.disabled = false;
    }
  }

  const go = (doing, path, body) => change(doing, async () => show(await ask(path, body)));
  const move = (module, device) => go("Simulating", `/steps/${step.number}/move`, { module, device });

  function show(answer) {
    step = answer;
    const { tried, notes, colours } = answer;
    draw(step.number);
    at("said").textContent = answer.said;
    at("change").textContent = answer.change;
    at("change").className = /longer/.test(answer.change) ? "longer" : /shorter/.test(answer.change) ? "shorter" : "";
    at("tiles").innerHTML = answer.tiles; // of the same making as the tables of reports, which escape all names
    at("sheets").innerHTML = answer.sheets;
    say(notes, !answer.fits);
    at("tried").replaceChildren(...listed(tried));
    at("tried").querySelector("[aria-current]").scrollIntoView({ block: "nearest" });
    choose(document.forms.runtime.elements.runtime, answer.runtime);
    at("devices").replaceChildren(...answer.devices.map(card));
    for (const [module, row] of rows) fill(module, row);
    document.dispatchEvent(new CustomEvent("graph:devices", { detail: colours }));
    if (op) explain(op.name, { quietly: true });
  }

  function listed(tried) { // a row for each plan, as long as its step
    const longest = Math.max(...tried.map((each) => each.seconds));
    const fitting = tried.filter((each) => each.fits).map((each) => each.seconds);
    return tried.map(({ number, title, said, seconds, fits }) => {
      const isFastest = tried.length > 1 && fits && seconds === Math.min(...fitting);
      const remark = fits ? (isFastest ? " fastest" : "") : " does not fit";
      const button = make(
        "button", { type: "button", title, onclick: () => go("Drawing", `/steps/${number}`) },
        make("span", { class: "number" }, String(number)), make("span", { class: "title" }, title),
        make("span", { class: "time" }, said, make("span", { class: "remark" }, remark)),
        make("span", { class: "length", style: `width:${(100 * seconds) / longest}%` }),
      );
      const kind = fits ? (isFastest ? "fastest" : "") : "bad";
      return make("li", { class: kind, "aria-current": number === step.number && "true" }, button);
    });
  }

  // The timeline

  async function draw(number) { // numbers are there before the chart is
    const place = at("timeline");
    place.ariaBusy = "true";
    const chart = await (await asked(`/steps/${number}/chart`)).text();
    if (number !== step.number) return; // another one is asked for meanwhile
    place.style.minHeight = `${place.offsetHeight}px`;
    const { start, end, bounds } = timeline?.x_range ?? {};
    enlarged = timeline && end - start < 0.999 * bounds[1] ? { start, end, unit: unit() } : null;
    forget(timeline);
    timeline = null;
    place.innerHTML = chart;
    place.querySelector(".chart").dispatchEvent(new CustomEvent("draw", { bubbles: true }));
  }

  function forget(chart) { // which Bokeh would keep
    if (!chart) return;
    const drawn = chart.document;
    Bokeh.index.get(chart)?.remove();
    Bokeh.documents.splice(Bokeh.documents.indexOf(drawn), 1);
  }

  const unit = () => timeline.below[0].axis_label;
  const source = (name) => timeline.document.get_model_by_name(name);
  const scale = () => ({ seconds: 1, ms: 1e3, "µs": 1e6 })[unit()];

  document.addEventListener("drawn", ({ target, detail: model }) => {
    if (!at("timeline").contains(target)) return;
    timeline = model;
    at("timeline").style.minHeight = "";
    at("timeline").ariaBusy = "false";
    if (enlarged?.unit === unit()) timeline.x_range.setv({ start: enlarged.start, end: enlarged.end });
    timeline.on_event("tap", ({ x, y }) => {
      const { data, tags: [words] } = source("boxes");
      const row = data.start.findIndex((from, each) =>
        from <= x && x <= data.finish[each] && Math.abs(y - data.y[each]) <= data.height[each] / 2);
      if (row < 0) return;
      const module = words.modules[data.module[row]];
      explain(`${module ? `${module}/` : ""}${words.ops[data.op[row]]}`);
    });
    if (op) frame(op);
  });

  function frame(each) { // the op and what it waited for, one after another
    if (!timeline) return;
    const { data, tags: [words] } = source("boxes"), picked = { start: [], finish: [], y: [], height: [], width: [] };
    for (const { name, device, start, finish } of [each, ...each.chain]) {
      const lane = words.lanes.indexOf(device), middle = (scale() * (start + finish)) / 2;
      const row = data.lane.findIndex((of, box) => of === lane && data.start[box] <= middle && middle <= data.finish[box]);
      if (row < 0) continue;
      picked.start.push(scale() * start);
      picked.finish.push(scale() * finish);
      picked.y.push(data.y[row]);
      picked.height.push(data.height[row]);
      picked.width.push(name === each.name ? 3 : 1);
    }
    source("picked").data = picked;
  }

  // An op

  async function explain(name, { quietly = false } = {}) {
    let found;
    try {
      found = await ask(`/steps/${step.number}/op?name=${encodeURIComponent(name)}`);
    } catch (error) {
      if (!quietly) say([error.message], true);
      else if (op.own && op.own !== name) explain(op.own, { quietly }); // a copy that another plan has not
      return;
    }
    op = found;
    document.forms.find.elements.name.value = op.name;
    frame(op);
    at("op").replaceChildren(...described(op));
    if (quietly) return;
    if (op.op >= 0) document.dispatchEvent(new CustomEvent("graph:choose", { detail: op.op }));
    reveal(op.module);
  }

  function described({ name, what, device, when, why, output, memory, sends, chain, copies, is_critical, own }) {
    const facts = [
      ["what", what], ["where", device], ["when", when], ["why not earlier", why], ["output", output],
      [`memory of ${device}`, `${memory} as it begins`], ...sends.map((each) => ["sends", each]),
    ];
    if (copies > 1) facts.unshift(["copies", `the first of ${copies}, of micro-batches and replicas`]);
    const marked = is_critical ? [" ", make("span", { class: "critical" }, "critical path")] : [];
    const found = [
      make("h3", { class: "name" }, name, ...marked),
      make("dl", {}, ...facts.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, text)])),
    ];
    if (own) found.push(make("label", {}, "Move this op alone", mover(own, own)));
    if (chain.length) {
      found.push(make("h3", {}, "It waited for"), make("ol", {}, ...chain.map((each) => make("li", {},
        make("button", { type: "button", class: "link", onclick: () => explain(each.name) }, each.name),
        ` on ${each.device}: ${each.why}`))));
    }
    return found;
  }

  // Modules and devices

  const colour = (device) => step.colours.palette[step.colours.categories.indexOf(device)] ?? "#8c929b";

  function card({ name, busy, said, full, memory, fits }) {
    const level = (share) => make("span", { class: "level" }, make("i", { style: `width:${Math.min(100, 100 * share)}%` }));
    const element = make("li", { style: `--colour:${colour(name)}` }, make("strong", {}, name),
      make("span", {}, said), level(busy), make("span", { class: fits ? "" : "bad" }, memory), level(full));
    element.addEventListener("dragover", (event) => { event.preventDefault(); element.classList.add("over"); });
    element.addEventListener("dragleave", () => element.classList.remove("over"));
    element.addEventListener("drop", (event) => {
      event.preventDefault();
      element.classList.remove("over");
      move(event.dataTransfer.getData("text/plain"), name);
    });
    return element;
  }

  function mover(module, called) {
    const options = modules.devices.map((device) => make("option", { value: device }, device));
    const choice = make("select", { "aria-label": `Move ${called} to` }, make("option", { value: "" }, "move to …"), ...options);
    choice.addEventListener("change", () => {
      if (choice.value) move(module, choice.value);
      choice.value = "";
    });
    return choice;
  }

  function branch(module) { // a module, and those in it once it is opened
    const path = modules.paths[module], called = path || "the whole model";
    const row = make("div", { class: "row", draggable: "true", title: called });
    const item = make("li", {}, row), own = path.split(".").pop() || called;
    const fold = inside[module].length
      ? make("button", { type: "button", class: "fold", "aria-expanded": "false", "aria-label": `Modules in ${called}`, onclick: () => toggle(module) }, "▸")
      : make("span", {});
    const count = modules.ops[module];
    row.append(fold, make("span", { class: "name" }, own, " ", make("span", { class: "count" }, `${count.toLocaleString("en")} ${count === 1 ? "op" : "ops"}`)),
      make("span", { class: "homes" }), make("span", { class: "busy" }), mover(path, called));
    row.addEventListener("dragstart", (event) => {
      event.dataTransfer.setData("text/plain", path);
      document.body.classList.add("dragging");
    });
    row.addEventListener("dragend", () => document.body.classList.remove("dragging"));
    rows.set(module, row);
    fill(module, row);
    return item;
  }

  function fill(module, row) { // what a step changes
    const homes = step.homes[module].map((device) => modules.devices[device]);
    const swatches = homes.slice(0, 8).map((device) => make("i", { style: `background:${colour(device)}` }));
    const named = homes.length === 1 ? homes[0] : `${homes.length} devices`;
    row.querySelector(".homes").replaceChildren(...swatches, ` ${named}`);
    row.querySelector(".homes").title = homes.join(", ");
    row.querySelector(".busy").textContent = seconds(step.busy[module]);
  }

  const seconds = (value) => {
    const [unit, size] = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]].find(([, each]) => value >= each) ?? ["s", 1];
    return `${Number((value / size).toPrecision(3))} ${unit}`;
  };

  function toggle(module, isOpen) {
    const item = rows.get(module).parentElement, fold = item.querySelector(":scope > .row > .fold");
    const list = item.querySelector(":scope > ul");
    const opens = isOpen ?? (!list || list.hidden);
    if (opens && !list) item.append(make("ul", {}, ...inside[module].map(branch)));
    else if (list) list.hidden = !opens;
    if (fold) [fold.textContent, fold.ariaExpanded] = opens ? ["▾", "true"] : ["▸", "false"];
  }

  function reveal(path) {
    const chain = [];
    for (let module = modules.paths.indexOf(path); module >= 0; module = modules.parent[module]) chain.unshift(module);
    for (const module of chain.slice(0, -1)) toggle(module, true);
    for (const row of rows.values()) row.classList.remove("chosen");
    const row = rows.get(chain.at(-1));
    if (!row) return;
    row.classList.add("chosen");
    const box = at("modules");
    box.scrollTop += row.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
  }

  document.addEventListener("graph:chosen", ({ detail: { name, module } }) => {
    reveal(module);
    if (name) explain(name);
  });

  // The forms

  function choose(select, value) { // among its options, or as another one
    const isKnown = [...select.options].some((option) => option.value === value);
    select.value = isKnown ? value : "";
    if (!isKnown) select.form.elements.spec.value = value;
    select.dispatchEvent(new Event("change"));
  }

  for (const select of document.querySelectorAll("#place [name=placer], #runtime [name=runtime]")) {
    const other = select.form.querySelector(".other");
    select.addEventListener("change", () => { other.hidden = select.value !== ""; });
  }

  function submitted(id, act) {
    at(id).addEventListener("submit", (event) => {
      event.preventDefault();
      act(event.target.elements);
    });
  }

  submitted("place", ({ placer, spec, budget }) => {
    const wanted = placer.value || spec.value.trim();
    go(`Placing with ${wanted}`, `/steps/${step.number}/place`, { placer: wanted, budget: budget.valueAsNumber || 0 });
  });
  submitted("runtime", ({ runtime, spec }) =>
    go("Simulating", `/steps/${step.number}/runtime`, { runtime: runtime.value || spec.value.trim() }));
  submitted("find", ({ name }) => name.value.trim() && explain(name.value.trim()));
  submitted("export", ({ to }) => change("Writing", async () => {
    if (!to.value) {
      const { file, commands } = step;
      make("a", { href: addressed(`/steps/${step.number}/plan`), download: file }).click();
      const lines = commands.map((line) => make("code", {}, line));
      say([`${file} is downloaded.${lines.length ? " To run it, where that file and the model are:" : ""}`, ...lines]);
      return;
    }
    const { name, content, said } = await ask(`/steps/${step.number}/export?to=${to.value}`);
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    const address = URL.createObjectURL(new Blob([bytes]));
    make("a", { href: address, download: name }).click();
    URL.revokeObjectURL(address);
    say([`${name} is downloaded.`, ...said]);
  }));

  at("modules").firstElementChild.append(branch(0));
  toggle(0, true);
  show(first);
  const linked = new URLSearchParams(location.hash.slice(1)).get("op"); // as in #op=layers.0/mm
  if (linked) explain(linked);
})();
