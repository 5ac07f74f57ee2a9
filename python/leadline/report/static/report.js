// Draws the report's charts with uPlot, each when it first comes into view: a trial when it is opened, a comparison at once.
// Reads only what stands in the page. A case is packed there and unpacked when it is opened; its markup was escaped when the
// page was made, and the page's policy runs no script in it. Other text is written through textContent, never as markup.
(() => {
  "use strict";
  const UNKNOWN = "–";
  const Y_AXIS_PX = 50;
  const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 2], [14, 3], [12, 4, 2, 4], [6, 2, 1, 2]];
  // Drawn by CSS, so that they follow the colour scheme by themselves.
  const LEGEND_MARKERS = {
    width: 3, fill: "transparent",
    stroke: (_, index) => `var(--line-${((index - 1) % 8) + 1})`,
    dash: (_, index) => ((index - 1) % 8 === 0 ? "solid" : (index - 1) % 2 ? "dashed" : "dotted"),
  };
  const plots = new Set();
  const drawn = new Set();
  const unpacked = new Set();
  const chartsOf = new Map();

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

  // One unit for a whole axis, by the largest value on it: the caption states the unit, the ticks are bare numbers.
  function axisUnit(largest, unit) {
    const step = unit === "B" ? 1024 : 1000;
    const prefixes = unit === "%" ? [""] : unit === "µs" ? ["µ", "m", ""] : unit === "B" ? ["", "Ki", "Mi", "Gi", "Ti"] : ["", "k", "M", "G", "T"];
    let index = 0;
    while (largest >= step ** (index + 1) && index < prefixes.length - 1) index += 1;
    const divisor = step ** index;
    const steps = [-2, -1, 0, 1, 2, 3].flatMap((power) => [1, 2, 5].map((lead) => lead * 10 ** power * divisor));
    return { unit: unit === "%" ? "% of one CPU" : prefixes[index] + (unit === "µs" ? "s" : unit), divisor, steps };
  }

  function tickText(value) {
    return String(Number(value.toPrecision(4)));
  }

  function microseconds(value) {
    const [divisor, unit] = value < 1 ? [1e-3, "ns"] : value < 1e3 ? [1, "µs"] : value < 1e6 ? [1e3, "ms"] : [1e6, "s"];
    return `${tickText(value / divisor)} ${unit}`;
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

  // Head and tail, disturbed parts and stalls under the lines. The two latter also have a bar at the top, stalls a broken one.
  function shade(cuts, marks, named) {
    return (u) => {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      for (const mark of marks) {
        const from = u.valToPos(mark.from, "x", true), wide = Math.max(devicePixelRatio, u.valToPos(mark.to, "x", true) - from);
        ctx.fillStyle = color(`${mark.kind}-wash`);
        ctx.fillRect(from, bbox.top, wide, bbox.height);
        ctx.fillStyle = color(mark.kind);
        const dash = 3 * devicePixelRatio, bar = mark.kind === "stall" ? dash : wide;
        for (let at = 0; at < wide; at += 2 * bar) ctx.fillRect(from + at, bbox.top, Math.min(bar, wide - at), dash);
      }
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
      }
      ctx.restore();
      if (named) cuts.forEach((cut) => nameCut(u, cut));
    };
  }

  // Above the plot, where no line runs: the head's name begins with it, the tail's ends with it.
  function nameCut(u, cut) {
    const { ctx, bbox } = u, tail = cut.name === "tail";
    const edge = u.valToPos(tail ? cut.to : cut.from, "x", true);
    if (edge < bbox.left || edge > bbox.left + bbox.width) return;
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px ${getComputedStyle(document.body).fontFamily}`;
    ctx.fillStyle = color("muted");
    ctx.textAlign = tail ? "right" : "left";
    ctx.textBaseline = "bottom";
    ctx.fillText(cut.name, edge, bbox.top - 3 * devicePixelRatio);
    ctx.restore();
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

  function drawOverTime(parent, test, plotData, together, first, last) {
    const lines = plotData.lines.map((one) => ({ ...one, values: one.values.map((count) => (count === null ? null : count * one.step)) }));
    const tables = lines.map((one) => [instants(test.axes[one.axis]), one.values]);
    // Every plot of a test spans the same time: its ends are added as points without a value.
    const data = uPlot.join([[test.span, test.span.map(() => undefined)], ...tables]);
    data.splice(1, 1);
    const unit = plotData.unit;
    const largest = Math.max(0, ...lines.flatMap((one) => one.values.filter((value) => value !== null)));
    const scale = axisUnit(largest, unit);
    const options = {
      height: last ? 190 : 158,
      padding: [first ? 18 : 8, null, null, null],
      legend: { markers: LEGEND_MARKERS },
      cursor: { sync: { key: together }, y: false },
      scales: { x: { time: false }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
      axes: [
        axis(last ? { label: "s after the first flow began", labelSize: 18, labelFont: font(), size: 30 } : { size: 12, values: () => [] }),
        axis({ size: Y_AXIS_PX, incrs: scale.steps, values: (_, ticks) => ticks.map((tick) => tickText(tick / scale.divisor)) }),
      ],
      series: [
        { label: "at", value: (_, value) => (value === null || value === undefined ? UNKNOWN : `${value.toFixed(2)} s`) },
        ...plotData.lines.map((one, index) => line(one.name, unit, index)),
      ],
      hooks: { drawClear: [shade(test.cuts, test.marks, first)] },
    };
    return draw(figure(parent, plotData.title, scale.unit, plotData.notes), options, data, `${plotData.title}. ${plotData.spoken}`);
  }

  // A bar for each flow on the time axis of the plots above: pale from when it was due, and where not all flows of a group run.
  function drawFlows(parent, test, flows, above) {
    const holder = figure(parent, flows.title, "from when each began (pale: was due) to its end", [flows.spoken]);
    const rows = flows.bars.length, step = Math.min(12, Math.max(1.5, 260 / rows)), height = Math.ceil(rows * step) + 2;
    const [first, last] = test.span, at = (time) => ((Math.min(last, Math.max(first, time)) - first) / (last - first || 1)) * 100;
    const picture = svg("svg", { class: "flows", height, role: "img", "aria-label": `${flows.title}. ${flows.spoken}` });
    const box = (y, from, to, high, className) =>
      picture.append(svg("rect", { x: `${at(from)}%`, y, width: `${Math.max(0.1, at(to) - at(from))}%`, height: high, class: className }));
    for (const mark of test.marks) box(0, mark.from, mark.to, height, mark.kind);
    for (const cut of test.cuts) box(0, cut.from, cut.to, height, "cut");
    flows.bars.forEach(([name, due, start, allFrom, allUntil, end], row) => {
      const y = 1 + row * step, high = Math.max(1, step - (step > 4 ? 2 : 0.5));
      if (start > due) box(y + high / 3, due, start, high / 3, "due");
      box(y, start, end, high, "some");
      if (allUntil > allFrom) box(y, allFrom, allUntil, high, "all");
      const title = svg("title", {});
      title.textContent = `${name}: ${start.toFixed(2)} to ${end.toFixed(2)} s`;
      picture.lastChild.append(title);
    });
    holder.append(picture);
    // On the same axis as the plots, whose margins depend on their labels.
    const align = () => requestAnimationFrame(() => {
      if (!above || !above.bbox.width) return;
      picture.style.marginLeft = `${above.bbox.left / devicePixelRatio}px`;
      picture.style.width = `${above.bbox.width / devicePixelRatio}px`;
    });
    new ResizeObserver(align).observe(holder);
  }

  function svg(name, attributes) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  }

  function drawCurves(parent, curves) {
    const groups = [...new Set(curves.map((one, index) => one.group ?? index))];
    const data = uPlot.join(curves.map((one) => [one.x, one.y]));
    const series = curves.map((one, index) => {
      const group = groups.indexOf(one.group ?? index);
      return line(one.name, "µs", group, { points: { show: true, size: 4, fill: lineColor(group) } });
    });
    const top = Math.max(1, ...curves.flatMap((one) => one.x));
    const ticks = [0, 0.30103, ...Array.from({ length: Math.floor(top) }, (_, nine) => nine + 1)];
    const grouped = curves.some((one) => one.group !== null);
    const options = {
      height: 250,
      padding: [null, 28, null, null],
      cursor: { show: !grouped, y: false, drag: { x: false, y: false } },
      legend: { show: !grouped, markers: LEGEND_MARKERS },
      scales: { x: { time: false, range: [0, top] }, y: { distr: 3 } },
      axes: [
        axis({ splits: () => ticks, size: 30, values: (u, splits) => withRoom(u, splits) }),
        axis({ size: Y_AXIS_PX + 8, values: (_, splits) => splits.map((tick) => (tick ? microseconds(tick) : "")),
               filter: (_, splits) => splits.map((tick) => (labelled(splits, tick) ? tick : null)) }),
      ],
      series: [{ label: "at", value: (_, value) => (value === null || value === undefined ? UNKNOWN : percentile(value)) }, ...series],
    };
    const spoken = curves.map((one) => `${one.name}: lowest ${written(one.y[0], "µs")}, highest ${written(one.y[one.y.length - 1], "µs")}`);
    draw(parent, options, data, `Latency by percentile. ${spoken.join("; ")}`);
    if (grouped) parent.append(key(groups.map((group) => curves.find((one) => one.group === group).name)));
  }

  // What was measured (pale), its means with their intervals, and the fitted curve, at the numbers of an axis.
  function drawScaling(parent, one) {
    const numbers = one.means.map(([number]) => number), first = numbers[0], last = numbers[numbers.length - 1];
    const figures = [...one.points, ...one.means, ...one.curve].map(([, value]) => value);
    const lowest = Math.min(...figures), highest = Math.max(...figures), byUnit = axisUnit(highest, one.unit);
    const across = last > 10 * first, up = lowest > 0 && highest > 10 * lowest, gap = (last - first) * 0.05;
    const time = one.unit === "µs", notes = across && up ? ["both axes logarithmic"] : across || up ? [`${up ? "figures" : "numbers"} logarithmic`] : [];
    const options = {
      height: 210,
      padding: [18, 14, null, null],
      cursor: { y: false, drag: { x: false, y: false } },
      legend: { markers: LEGEND_MARKERS },
      scales: {
        x: { time: false, distr: across ? 3 : 1, range: () => (across ? [first / 1.15, last * 1.15] : [first - gap, last + gap]) },
        y: { distr: up ? 3 : 1, range: () => (up ? [lowest / 1.4, highest * 1.4] : [0, highest * 1.12]) },
      },
      axes: [
        axis({ label: one.axis, labelSize: 18, labelFont: font(), size: 30, splits: () => numbers,
               filter: (_, splits) => splits, values: (u, splits) => spaced(u, splits, splits.map(tickText)) }),
        axis({ size: Y_AXIS_PX + (time ? 8 : 0), filter: (_, splits) => splits,
               ...(up ? { splits: () => decades(lowest / 1.4, highest * 1.4, one.unit === "B") } : { incrs: time ? undefined : byUnit.steps }),
               values: (_, ticks) => ticks.map((tick) => (time ? (tick ? microseconds(tick) : "0") : tickText(tick / byUnit.divisor))) }),
      ],
      series: [
        { label: one.axis, value: (_, value) => (value === null || value === undefined ? UNKNOWN : tickText(value)) },
        line("mean", one.unit, 0, { paths: () => null, points: { show: true, size: 7, fill: lineColor(0) } }),
        ...(one.curve.length ? [line(one.fit, one.unit, 1, { spanGaps: true, pxAlign: 0 })] : []),
      ],
      hooks: { drawClear: [(u) => underScaling(u, one)] },
    };
    const means = [numbers, one.means.map(([, mean]) => mean)];
    const curve = [one.curve.map(([number]) => number), one.curve.map(([, value]) => value)];
    const caption = parent.querySelector("figcaption");
    if (!time) caption.append(span("unit", ` ${one.unit === "%" ? "%" : byUnit.unit}`));
    if (notes.length) caption.append(span("thinned", ` · ${notes.join("; ")}`));
    draw(parent, options, uPlot.join(one.curve.length ? [means, curve] : [means]), `${one.title}: ${one.spoken}`);
  }

  // Under the curve: each repeat, the means' intervals, and where the knee and the peak are.
  function underScaling(u, one) {
    const { ctx, bbox } = u, px = devicePixelRatio, at = (value) => u.valToPos(value, "x", true);
    const down = (value) => (u.scales.y.distr === 3 && value <= 0 ? bbox.top + bbox.height : u.valToPos(value, "y", true));
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top - 18 * px, bbox.width, bbox.height + 18 * px);
    ctx.clip();
    ctx.font = `${11 * px}px ${getComputedStyle(document.body).fontFamily}`;
    ctx.textBaseline = "bottom";
    // The knee comes before the peak: its name ends at its line, that of the last mark begins at it where there is room.
    one.marks.forEach((mark, index) => {
      const x = at(mark.at), before = index < one.marks.length - 1, wide = ctx.measureText(mark.name).width;
      stroke(ctx, [[x, bbox.top], [x, bbox.top + bbox.height]], "cut", [3 * px, 3 * px]);
      ctx.fillStyle = color("muted");
      const from = before ? Math.max(bbox.left, x - wide - 3 * px) : Math.min(x, bbox.left + bbox.width - wide);
      ctx.fillText(mark.name, from, bbox.top - 3 * px);
    });
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const [number, , low, high] of one.means) {
      if (low === null || high === null) continue;
      const x = at(number), ends = [down(low), down(high)];
      stroke(ctx, [[x, ends[0]], [x, ends[1]]], "whisker", []);
      for (const y of ends) stroke(ctx, [[x - 4 * px, y], [x + 4 * px, y]], "whisker", []);
    }
    ctx.fillStyle = color("cut");
    for (const [number, value] of one.points) {
      ctx.beginPath();
      ctx.arc(at(number), down(value), 2 * px, 0, 7);
      ctx.fill();
    }
    ctx.restore();
  }

  function stroke(ctx, path, name, dash) {
    ctx.strokeStyle = color(name);
    ctx.lineWidth = 1.25 * devicePixelRatio;
    ctx.setLineDash(dash);
    ctx.beginPath();
    path.forEach(([x, y], index) => (index ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
    ctx.stroke();
  }

  // Powers of ten between two values, with 2 and 5 times them where there is less than two decades; of bytes powers of two.
  function decades(low, high, bytes) {
    const base = bytes ? 2 : 10, wide = high / low > 100, found = [];
    const every = bytes ? Math.max(1, Math.ceil(Math.log2(high / low) / 6)) : 1;
    for (let power = Math.floor(Math.log(low) / Math.log(base)); base ** power <= high; power += every) {
      for (const lead of bytes || wide ? [1] : [1, 2, 5]) {
        const value = lead * base ** power;
        if (value >= low && value <= high) found.push(value);
      }
    }
    return found;
  }

  // Percentiles under the axis, leaving out those that would run into the one before.
  function withRoom(plot, splits) {
    return spaced(plot, splits, splits.map((tick) => (tick === 0 ? "min" : percentile(tick))));
  }

  function spaced(plot, splits, texts) {
    let free = -Infinity;
    return splits.map((tick, index) => {
      const half = 4 * texts[index].length, at = plot.valToPos(tick, "x");
      if (at - half < free) return "";
      free = at + half;
      return texts[index];
    });
  }

  // Powers of ten, and 2 and 5 times them where the axis spans less than two decades.
  function labelled(splits, value) {
    const lead = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
    const wanted = splits[splits.length - 1] / splits[0] > 100 ? [1] : [1, 2, 5];
    return wanted.some((good) => Math.abs(lead - good) < 0.01);
  }

  // One entry per case, whatever the number of its repeats.
  function key(names) {
    const list = document.createElement("ul");
    list.className = "key";
    names.forEach((name, index) => {
      const entry = document.createElement("li");
      const sample = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
      const looks = { x1: 0, x2: "100%", y1: "50%", y2: "50%", "stroke-width": 2.5, "stroke-dasharray": DASHES[index % 8].join(" ") };
      for (const [name, value] of Object.entries(looks)) stroke.setAttribute(name, value);
      stroke.style.stroke = `var(--line-${(index % 8) + 1})`;
      sample.setAttribute("aria-hidden", "true");
      sample.append(stroke);
      entry.append(sample, name);
      list.append(entry);
    });
    return list;
  }

  // What is shaded in the plots above, and for how long.
  function shadedKey(shaded) {
    const list = document.createElement("ul");
    list.className = "key shaded";
    list.setAttribute("aria-label", "Shaded in the plots");
    for (const one of shaded) {
      const entry = document.createElement("li");
      const sample = span(`sample ${one.kind}`, "");
      sample.setAttribute("aria-hidden", "true");
      entry.append(sample, one.words);
      list.append(entry);
    }
    return list;
  }

  // An axis is its first instant and then the steps, all in ms.
  function instants(steps) {
    let now = 0;
    return steps.map((step) => { now += step; return now / 1000; });
  }

  // JSON, deflated, in base64.
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(inflated).text());
  }

  async function drawCase(details) {
    const source = details.querySelector(":scope > script");
    if (!source || unpacked.has(details)) return;
    unpacked.add(details);
    try {
      const content = await unpack(source.textContent), template = document.createElement("template");
      template.innerHTML = content.markup;
      template.content.querySelectorAll("details.trial").forEach((trial, index) => chartsOf.set(trial, content.trials[index]));
      details.append(template.content);
      drawVisible(details);
    } catch (error) {
      const said = document.createElement("p");
      said.className = "alarm";
      said.textContent = `This browser cannot unpack the case: ${error.message}`;
      details.append(said);
    }
  }

  function drawTrial(details) {
    if (!chartsOf.has(details) || drawn.has(details)) return;
    drawn.add(details);
    const holders = details.querySelectorAll(":scope > .test > .charts");
    chartsOf.get(details).forEach((test, index) => {
      const part = holders[index], together = `${drawn.size}-${index}`;
      const over = test.plots.map((one, place) => drawOverTime(part, test, one, together, place === 0, place === test.plots.length - 1));
      if (test.plots.length && test.shaded.length) part.append(shadedKey(test.shaded));
      if (test.flows) drawFlows(part, test, test.flows, over.at(-1));
      if (test.curves.length) drawCurves(figure(part, "Latency by percentile", "logarithmic", []), test.curves);
      if (!test.plots.length && !test.curves.length) part.append("Nothing was recorded over time.");
    });
  }

  // ---- the page --------------------------------------------------------------------------------------------------

  const visible = (details) => details.open && !details.parentElement.closest("details:not([open])");

  function drawVisible(root) {
    for (const details of [root, ...root.querySelectorAll("details")]) {
      if (details.matches?.("details.case[open]")) drawCase(details);
      if (details.matches?.("details.trial") && visible(details)) drawTrial(details);
    }
  }

  function openTarget() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
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

  // On paper all is open that the page holds, and what was closed is closed again.
  function openForPrint() {
    const closed = [...document.querySelectorAll("details:not(.case):not([open])")];
    closed.forEach((details) => { details.open = true; });
    drawVisible(document);
    addEventListener("afterprint", () => closed.forEach((details) => { details.open = false; }), { once: true });
  }

  const redraw = () => plots.forEach((plot) => plot.redraw(false, true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  matchMedia("print").addEventListener("change", redraw);
  addEventListener("beforeprint", openForPrint);
  addEventListener("hashchange", openTarget);
  // Escape closes the innermost section around the focus, and leaves the focus on its heading.
  addEventListener("keydown", (event) => {
    const details = event.key === "Escape" && document.activeElement?.closest("main details[open]");
    if (!details || document.activeElement.matches(".plot")) return;
    details.open = false;
    details.querySelector("summary").focus();
  });
  document.addEventListener("toggle", (event) => event.target.open && drawVisible(event.target), true);
  for (const holder of document.querySelectorAll("[data-chart=curves]")) {
    drawCurves(holder, JSON.parse(holder.querySelector("script").textContent));
  }
  for (const holder of document.querySelectorAll("[data-chart=scaling]")) {
    drawScaling(holder, JSON.parse(holder.querySelector("script").textContent));
  }
  openTarget();
  offerCopying();
  drawVisible(document);
})();
