// Draws the charts of a page one after another, in the colours of the reader's scheme, and again if that changes.
// Each says "drawn" when it is, with its Bokeh model; the event "draw" on an element of a chart draws it.
(() => {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const dark = DARK;

  function models(chart) {
    const found = new Map();
    for (const model of chart.view.model.document._all_models.values()) {
      if (model.name) found.set(model.name, [...(found.get(model.name) ?? []), model]);
    }
    return found;
  }

  function toggle(chart, box) {
    const named = models(chart);
    for (const name of box.dataset.models.split(" ")) {
      for (const model of named.get(name) ?? []) model.visible = box.checked;
    }
  }

  async function draw(element) {
    let text = element.querySelector("script").textContent;
    if (scheme.matches) for (const [light, shade] of Object.entries(dark)) text = text.replaceAll(light, shade);
    const canvas = element.querySelector(".canvas");
    canvas.replaceChildren();
    const views = await Bokeh.embed.embed_item(JSON.parse(text), canvas);
    const chart = { view: [...views][0] };
    for (const box of element.querySelectorAll("input[data-models]")) {
      box.onchange = () => toggle(chart, box);
      if (!box.checked) toggle(chart, box);
    }
    element.dataset.drawn = "yes";
    element.dispatchEvent(new CustomEvent("drawn", { bubbles: true, detail: chart.view.model }));
  }

  async function drawAll() {
    for (const element of document.querySelectorAll(".chart")) {
      await new Promise((done) => setTimeout(done));
      await draw(element);
    }
  }

  addEventListener("DOMContentLoaded", drawAll);
  addEventListener("draw", ({ target }) => draw(target));
  scheme.addEventListener("change", drawAll);
})();
