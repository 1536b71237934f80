// Draws the charts of a page from the specifications written into it, with no request to anywhere.
// The drawing takes the place of the chart's image, which stays where this script does not run.

// One column of panels on a phone, else as many as the chart asks for. A panel's axes take room that
// is known only after drawing, so `correction` holds what the first drawing was too wide by.
function fitPanels(spec, room, correction) {
  const columns = room < 560 ? 1 : spec.columns;
  const width = Math.floor((room - correction) / columns) - 70;
  const panels = spec.concat || [spec.spec];
  spec.columns = columns;
  panels.forEach((panel) => { panel.width = Math.max(width, 80); });
}

function fitted(source, room, correction) {
  const spec = structuredClone(source);
  if (spec.columns) fitPanels(spec, room, correction);
  spec.config.legend.columns = Math.max(2, Math.min(spec.config.legend.columns, Math.floor(room / 100)));
  return spec;
}

// What a reader has set with sliders, to be kept when a chart is drawn again.
function settings(view, spec) {
  const bound = (spec.params || []).filter((param) => param.bind && !param.select);
  return Object.fromEntries(bound.map(({ name }) => [name, view.signal(name)]));
}

async function draw(host, source, correction = 0) {
  const spec = fitted(source, host.clientWidth, correction);
  const before = host.view && settings(host.view, source);
  if (host.view) host.view.finalize();
  const target = host.querySelector(".book-chart-drawing");
  const actions = { export: true, source: false, compiled: false, editor: false };
  const { view } = await vegaEmbed(target, spec, { renderer: "svg", actions });
  host.view = view;
  for (const [name, value] of Object.entries(before || {})) view.signal(name, value);
  await view.runAsync();
  return target.querySelector("svg").clientWidth - host.clientWidth;
}

// Panels need a second drawing, once it is known how much room the axes took.
async function drawPanels(host, source) {
  const excess = await draw(host, source);
  await draw(host, source, excess);
}

function start(host) {
  const source = JSON.parse(host.querySelector("script").textContent);
  source.config = source.config || {};
  source.config.legend = { columns: 6, ...source.config.legend };
  host.querySelector("img")?.remove();
  const target = document.createElement("div");
  target.className = "book-chart-drawing";
  host.append(target);
  if (!source.columns) return draw(host, source);
  let timer;
  let width = host.clientWidth;
  window.addEventListener("resize", () => {
    if (host.clientWidth === width) return;
    width = host.clientWidth;
    clearTimeout(timer);
    timer = setTimeout(() => drawPanels(host, source), 200);
  });
  return drawPanels(host, source);
}

document.querySelectorAll(".book-chart").forEach(start);
