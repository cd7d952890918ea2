"""The page of `placelab open`, in Chromium: an op explains itself, and a module that moves changes the step."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.explorer.requests import Requests
from evaluation.records.formatting import seconds
from tests.evaluation.chromium import answer_at, asking
from tests.evaluation.explored import layers, round_robin, served

ASK = """
  const at = (id) => document.getElementById(id);
  const until = async (holds) => {
    for (let tries = 0; !holds() && tries < 500; tries++) await new Promise((done) => setTimeout(done, 20));
    if (!holds()) throw new Error(`waited in vain: ${holds}`);
  };
  const isDrawn = () => at("timeline").ariaBusy === "false" && at("timeline").querySelector(".chart").dataset.drawn;
  await until(isDrawn);
  const before = at("said").textContent;
  at("modules").querySelector(".fold[aria-label='Modules in layers']").click();
  const choice = at("modules").querySelector("select[aria-label='Move layers.1 to']");
  choice.value = "gpu:2";
  choice.dispatchEvent(new Event("change"));
  await until(() => at("tried").children.length === 2 && isDrawn());
  const after = at("said").textContent, change = at("change").textContent;
  const row = choice.closest(".row").querySelector(".homes").textContent.trim();

  const [boxes, ...others] = Bokeh.documents.map((each) => each.get_model_by_name("boxes")).filter(Boolean);
  if (others.length) throw new Error("a chart that is gone is kept");
  const [figure] = boxes.document.roots(), [words] = boxes.tags;
  const waits = (lane, each) => words.lanes[lane] === "gpu:2" && boxes.data.awaited_op[each] >= 0;
  const box = boxes.data.lane.findIndex(waits);
  const middle = (boxes.data.start[box] + boxes.data.finish[box]) / 2;
  for (const act of figure.js_event_callbacks.tap ?? figure.js_event_callbacks.get("tap")) {
    act({ x: middle, y: boxes.data.y[box] });
  }
  await until(() => at("op").querySelector("h3.name"));
  const op = words.ops[boxes.data.op[box]], name = at("op").querySelector("h3.name").textContent;
  const picked = figure.document.get_model_by_name("picked").data.start.length;

  const saved = [], { form } = document.forms.export.elements.to;
  HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href]); };
  for (const to of ["chakra", ""]) {
    form.elements.to.value = to;
    form.requestSubmit();
    await until(() => saved.length === (to ? 1 : 2) && /downloaded/.test(at("message").textContent));
  }
  const said = [...at("message").children].map((each) => each.textContent);
  const file = await (await fetch(saved[1][1])).json();

  at("tried").querySelector("button").click();
  await until(() => at("said").textContent === before);
  return JSON.stringify({ before, after, change, row, op, name, picked, saved, said, file,
    wide: document.documentElement.scrollWidth,
    chosen: document.querySelector("#modules .chosen .name").textContent, why: at("op").textContent });
"""


class Asking(Requests):
    """Requests whose page does what a reader would do."""

    def page(self) -> bytes:
        """The page, which asks itself."""
        return asking(super().page().decode(), ASK).encode()


@pytest.mark.parametrize("width", [1400, 400])
def test_a_reader_moves_a_module_and_asks_an_op(width: int, tmp_path: Path) -> None:
    tried = replace(round_robin(layers()), given=("layers.py:model", "three.toml", None))
    with served(Asking(tried)) as asked:
        found = json.loads(answer_at(asked.address, tmp_path, width))
        step, plan = asked.get("/steps/2"), asked.get("/steps/2/plan")
    assert found["row"] == "gpu:2"
    assert found["before"] == seconds(tried[1].placed.timeline.step_seconds)
    assert found["after"] == step["said"] != found["before"]
    assert found["change"] == step["change"]
    assert found["name"].startswith(f"layers.{int(found['op'][2:]) // 8}/{found['op']}")
    assert found["picked"] >= 2
    assert found["chosen"].startswith(str(int(found["op"][2:]) // 8))
    assert "why not earlier" in found["why"]
    assert [name for name, _ in found["saved"]] == ["step2.chakra.zip", "step2.plan.json"]
    assert found["file"] == plan
    assert found["said"] == [
        "step2.plan.json is downloaded. To run it, where that file and the model are:",
        *step["commands"],
    ]
    assert step["commands"][-1].startswith("placelab export layers.py:model step2.plan.json --cluster three.toml")
    assert found["wide"] <= max(width, 500)  # Chromium's least width of a window
