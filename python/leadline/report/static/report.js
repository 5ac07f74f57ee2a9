// Draws the report's charts with uPlot, each when it first comes into view: a trial when it is opened, a comparison at once.
// Reads only the JSON that stands in the page; writes text through textContent, never markup.
(() => {
  "use strict";
  const UNKNOWN = "–";
  const Y_AXIS_PX = 62;
  const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 2], [1, 2], [12, 4], [6, 2, 1, 2]];
  const plots = new Set();

  // ---- quantities ------------------------------------------------------------------------------------------------

  function scaled(value, step, prefixes, unit) {
    let magnitude = Math.abs(value), index = 0;
    while (magnitude >= step * 0.9995 && index < prefixes.length - 1) { magnitude /= step; index += 1; }
    const digits = magnitude === 0 || magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
    return `${value < 0 ? "-" : ""}${magnitude.toFixed(digits)} ${prefixes[index]}${unit}`;
  }

  function written(value, unit) {
    if (value === null || value === undefined) return UNKNOWN;
    if (unit === "B") return scaled(value, 1024, ["", "Ki", "Mi", "Gi", "Ti"], "B");
    if (unit === "µs") {
      if (value > 0 && value < 1) return scaled(value * 1e3, 1e9, [""], "ns");
      return value < 999.5 ? scaled(value, 1e9, [""], "µs") : scaled(value / 1e3, 1000, ["m", ""], "s");
    }
    if (unit === "%") return `${value.toFixed(value < 10 ? 1 : 0)} %`;
    return scaled(value, 1000, ["", "k", "M", "G", "T"], unit);
  }

  function percentile(nines) {
    const decimals = Math.max(0, Math.ceil(nines) - 2);
    return `p${((1 - 10 ** -nines) * 100).toFixed(decimals)}`;
  }

  // ---- looks -----------------------------------------------------------------------------------------------------

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const lineColor = (index) => () => color(`line-${(index % 8) + 1}`);
  const font = () => `12px ${getComputedStyle(document.body).fontFamily}`;

  function axis(more) {
    const quiet = () => color("muted");
    const grid = { stroke: () => color("grid"), width: 1 };
    return { stroke: quiet, font: font(), grid, ticks: { ...grid, size: 4 }, ...more };
  }

  function line(label, unit, index, more) {
    return {
      label, stroke: lineColor(index), width: 1.75, dash: DASHES[index % DASHES.length], points: { show: false },
      value: (_, value) => written(value, unit), ...more,
    };
  }

  // Head and tail under the lines; the names only where there is room for them.
  function shade(cuts, named) {
    return (u) => {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      for (const cut of cuts) {
        const from = u.valToPos(cut.from, "x", true), to = u.valToPos(cut.to, "x", true);
        ctx.fillStyle = color("shade");
        ctx.fillRect(from, bbox.top, to - from, bbox.height);
        ctx.strokeStyle = color("cut");
        ctx.lineWidth = devicePixelRatio;
        ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
        for (const edge of cut.name === "tail" ? [from] : [to]) {
          ctx.beginPath();
          ctx.moveTo(edge, bbox.top);
          ctx.lineTo(edge, bbox.top + bbox.height);
          ctx.stroke();
        }
        ctx.font = `${11 * devicePixelRatio}px ${getComputedStyle(document.body).fontFamily}`;
        const width = ctx.measureText(cut.name).width + 8 * devicePixelRatio;
        if (named && width <= bbox.width / 4) {
          const left = cut.name === "tail" ? Math.min(from, bbox.left + bbox.width - width) : from;
          ctx.fillStyle = color("muted");
          ctx.textBaseline = "top";
          ctx.fillText(cut.name, left + 4 * devicePixelRatio, bbox.top + 4 * devicePixelRatio);
        }
      }
      ctx.restore();
    };
  }

  // ---- charts ----------------------------------------------------------------------------------------------------

  function figure(parent, title, unit, notes) {
    const element = document.createElement("figure");
    element.className = "chart";
    const caption = document.createElement("figcaption");
    caption.append(title);
    if (unit) caption.append(span("unit", ` ${unit}`));
    if (notes.length) caption.append(span("thinned", ` · ${notes.join("; ")}`));
    element.append(caption);
    parent.append(element);
    return element;
  }

  function span(className, text) {
    const element = document.createElement("span");
    element.className = className;
    element.textContent = text;
    return element;
  }

  function draw(parent, options, data, spoken) {
    const holder = document.createElement("div");
    holder.className = "plot";
    holder.tabIndex = 0;
    holder.setAttribute("role", "group");
    holder.setAttribute("aria-label", spoken);
    parent.append(holder);
    const width = () => Math.max(200, Math.floor(holder.clientWidth));
    const plot = new uPlot({ ...options, width: width() }, data, holder);
    plots.add(plot);
    new ResizeObserver(() => {
      if (holder.clientWidth > 0 && width() !== plot.width) plot.setSize({ width: width(), height: options.height });
    }).observe(holder);
    holder.addEventListener("keydown", (event) => moveCursor(plot, event));
    return plot;
  }

  // Left and right go from sample to sample, with Shift ten at a time; Escape lets go.
  function moveCursor(plot, event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") plot.setCursor({ left: -10, top: -10 }, true, true);
    if (!step) return;
    event.preventDefault();
    const times = plot.data[0], now = plot.cursor.idx ?? (step > 0 ? -1 : times.length);
    const next = Math.min(times.length - 1, Math.max(0, now + step * (event.shiftKey ? 10 : 1)));
    plot.setCursor({ left: plot.valToPos(times[next], "x"), top: plot.over.clientHeight / 2 }, true, true);
  }

  function drawOverTime(parent, test, plotData, key, last) {
    const tables = plotData.lines.map((one) => [test.axes[one.axis], one.values]);
    // Every plot of a test spans the same time: its ends are added as points without a value.
    const data = uPlot.join([[test.span, test.span.map(() => undefined)], ...tables]);
    data.splice(1, 1);
    const unit = plotData.unit;
    const options = {
      height: last ? 190 : 158,
      cursor: { sync: { key }, y: false },
      scales: { x: { time: false }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
      axes: [
        axis(last ? { label: "s after the first flow began", labelSize: 18, labelFont: font(), size: 30 } : { size: 12, values: () => [] }),
        axis({ size: Y_AXIS_PX, values: (_, ticks) => ticks.map((tick) => written(tick, unit)) }),
      ],
      series: [
        { label: "at", value: (_, value) => (value === null || value === undefined ? UNKNOWN : `${value.toFixed(2)} s`) },
        ...plotData.lines.map((one, index) => line(one.name, unit, index)),
      ],
      hooks: { drawClear: [shade(test.cuts, true)] },
    };
    draw(figure(parent, plotData.title, "", plotData.notes), options, data, `${plotData.title}. ${plotData.spoken}`);
  }

  function drawCurves(parent, curves) {
    const groups = [...new Set(curves.map((one, index) => one.group ?? index))];
    const data = uPlot.join(curves.map((one) => [one.x, one.y]));
    const series = curves.map((one, index) => {
      const group = groups.indexOf(one.group ?? index);
      return line(one.name, "µs", group, { points: { show: true, size: 4, fill: lineColor(group) } });
    });
    const top = Math.ceil(Math.max(1, ...curves.flatMap((one) => one.x)));
    const shown = data[0].map((_, index) => data.slice(1).some((values) => Number.isFinite(values[index])));
    const options = {
      height: 260,
      cursor: { y: false, drag: { x: false, y: false } },
      scales: { x: { time: false, range: [0, top] }, y: { distr: 3 } },
      axes: [
        axis({ splits: () => [0, 0.30103, ...Array.from({ length: top }, (_, nine) => nine + 1)], size: 30,
               values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "p0" : percentile(tick))) }),
        axis({ size: Y_AXIS_PX, values: (_, ticks) => ticks.map((tick) => (oneTwoFive(tick) ? written(tick, "µs") : "")) }),
      ],
      series: [{ label: "at", value: (_, value) => (value === null || value === undefined ? UNKNOWN : percentile(value)) }, ...series],
    };
    const spoken = curves.map((one) => `${one.name}: lowest ${written(one.y[0], "µs")}, highest ${written(one.y[one.y.length - 1], "µs")}`);
    if (shown.length) draw(parent, options, data, `Latency by percentile. ${spoken.join("; ")}`);
  }

  function oneTwoFive(value) {
    if (value === null) return false;
    const lead = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
    return [1, 2, 5].some((good) => Math.abs(lead - good) < 0.01);
  }

  function drawTrial(details) {
    const holder = details.querySelector(":scope > .charts");
    const source = details.querySelector(":scope > script");
    if (!holder || !source || holder.childElementCount) return;
    JSON.parse(source.textContent).forEach((test, index) => {
      const part = document.createElement("div");
      part.className = "test";
      const heading = document.createElement("h4");
      heading.textContent = test.name;
      part.append(heading);
      holder.append(part);
      const key = `${source.id || Math.random()}-${index}`;
      test.plots.forEach((one, place) => drawOverTime(part, test, one, key, place === test.plots.length - 1));
      if (test.curves.length) drawCurves(figure(part, "Latency by percentile", "µs, logarithmic", []), test.curves);
      if (!test.plots.length && !test.curves.length) part.append("Nothing was recorded over time.");
    });
  }

  // ---- the page --------------------------------------------------------------------------------------------------

  const visible = (details) => details.open && !details.parentElement.closest("details:not([open])");

  function drawVisible(root) {
    for (const details of [root, ...root.querySelectorAll("details.trial")]) {
      if (details.matches?.("details.trial") && visible(details)) drawTrial(details);
    }
  }

  function openTarget() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target?.matches("details")) target.open = true;
  }

  function offerCopying() {
    if (!navigator.clipboard) return;
    for (const button of document.querySelectorAll(".copy button")) {
      button.hidden = false;
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
        button.textContent = "Copied";
      });
    }
  }

  const redraw = () => plots.forEach((plot) => plot.redraw(false, true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  matchMedia("print").addEventListener("change", redraw);
  addEventListener("hashchange", openTarget);
  document.addEventListener("toggle", (event) => event.target.open && drawVisible(event.target), true);
  for (const holder of document.querySelectorAll("[data-chart=curves]")) {
    drawCurves(holder, JSON.parse(holder.querySelector("script").textContent));
  }
  openTarget();
  offerCopying();
  drawVisible(document);
})();
