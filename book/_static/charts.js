// Draws the charts of a page from the specifications written into it, with no request to anywhere.
// The drawing takes the place of the chart's image, which stays where this script does not run.

// One column of panels on a phone, else as many as the chart asks for. What the axes of the panels
// take is known only after drawing: `excess` is by how much the drawing before was too wide.
function fitPanels(spec, room, excess) {
  spec.columns = room < 560 ? 1 : spec.columns;
  const width = Math.floor((room - excess) / spec.columns) - 70;
  for (const panel of spec.concat || [spec.spec]) panel.width = Math.max(width, 80);
}

function fitted(source, room, excess) {
  const spec = structuredClone(source);
  if (spec.columns) fitPanels(spec, room, excess);
  const columns = Math.max(2, Math.min(6, Math.floor(room / 110)));
  spec.config = { ...spec.config, legend: { ...spec.config?.legend, columns } };
  return spec;
}

// What a reader has set with sliders, to be kept when a chart is drawn again.
function settings(view, spec) {
  const bound = (spec.params || []).filter((param) => param.bind && !param.select);
  return bound.map(({ name }) => [name, view.signal(name)]);
}

async function draw(chart, excess = 0) {
  const { target, source } = chart;
  const kept = chart.view ? settings(chart.view, source) : [];
  chart.view?.finalize();
  const actions = { export: true, source: false, compiled: false, editor: false };
  const spec = fitted(source, target.clientWidth, excess);
  chart.view = (await vegaEmbed(target, spec, { renderer: "svg", actions })).view;
  for (const [name, value] of kept) chart.view.signal(name, value);
  await chart.view.runAsync();
}

// Draws again until the chart has the width of the page, which may change meanwhile.
async function drawToFit(chart) {
  if (chart.busy) return;
  chart.busy = true;
  while (chart.width !== chart.target.clientWidth) {
    chart.width = chart.target.clientWidth;
    await draw(chart);
    const excess = chart.target.querySelector("svg").clientWidth - chart.width;
    if (chart.source.columns && excess) await draw(chart, excess);
  }
  chart.busy = false;
}

function start(host) {
  const source = JSON.parse(host.querySelector("script").textContent);
  const target = document.createElement("div");
  target.className = "book-chart-drawing";
  host.querySelector("img")?.remove();
  host.append(target);
  const chart = { source, target };
  new ResizeObserver(() => drawToFit(chart)).observe(target);
}

document.querySelectorAll(".book-chart").forEach(start);
