// report.js - draws the data of hark report. Plain JavaScript: no library, nothing is loaded.
// The data are those of src/cli/report/report.h.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // Colours that people with colour blindness distinguish (after Okabe and Ito); after eight runs they repeat with other dashes.
  const lightColors = ["#0072B2", "#D55E00", "#00805C", "#B8518F", "#A87400", "#2F9BD8", "#6B4C9A", "#5A5A5A"];
  const darkColors = ["#56B4E9", "#FF8C42", "#2CC799", "#F49AC1", "#F2C14E", "#A6D8F7", "#BCA2EA", "#C9C9C9"];
  const dashes = ["", "9 4", "2 4", "9 3 2 3"];
  const color = (run) => (dark.matches ? darkColors : lightColors)[run % 8];
  const dash = (run) => dashes[Math.floor(run / 8) % dashes.length];

  // ---- small tools ----

  // An element with attributes (functions are listeners) and children (texts or elements).
  function make(tag, attributes, ...children) {
    const svg = ["svg", "g", "path", "line", "rect", "text", "circle", "title", "clipPath", "polyline"].includes(tag);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (typeof value === "function") element.addEventListener(name, value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  function clear(element) {
    while (element.firstChild) element.removeChild(element.firstChild);
  }

  // Four digits, with an exponent where they are far from 1.
  function number(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-3) return value.toExponential(3).replace("e+", "e");
    return String(Number(value.toPrecision(size >= 1e3 ? 6 : 4)));
  }

  // "12.3 k"
  function human(value, unit) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const factors = ["", " k", " M", " G", " T", " P"];
    let factor = 0;
    while (Math.abs(value) >= 999.5 && factor + 1 < factors.length) {
      value /= 1000;
      factor++;
    }
    return Number(value.toPrecision(3)) + (unit ? (factors[factor] || " ") + unit : factors[factor]);
  }

  function seconds(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    if (value < 60) return Number(value.toPrecision(3)) + " s";
    const hours = Math.floor(value / 3600);
    const minutes = Math.floor((value % 3600) / 60);
    return hours > 0 ? hours + " h " + minutes + " min" : minutes + " min " + Math.round(value % 60) + " s";
  }

  // Points whose x are the first number and then differences.
  function points(series) {
    const result = [];
    let x = 0;
    for (let i = 0; i < series.x.length; i++) {
      x += series.x[i];
      result.push([x, series.y[i]]);
    }
    return result.filter((point) => point[1] !== null);
  }

  const median = (values) => {
    const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
    return sorted.length === 0 ? NaN : sorted[Math.floor(sorted.length / 2)];
  };

  function section(id, title) {
    document.getElementById("contents").append(make("a", {href: "#" + id}, title));
    const element = make("section", {id, "aria-labelledby": id + "-title"}, make("h2", {id: id + "-title"}, title));
    main.append(element);
    return element;
  }

  const note = (...children) => make("p", {class: "note"}, ...children);
  const code = (words) => make("code", {}, words);

  // ---- names of runs ----

  // Paths without the folder that all of them share.
  function shortNames(paths) {
    const parts = paths.map((path) => path.replace(/\/+$/, "").split("/"));
    let shared = 0;
    while (parts.length > 1 && parts.every((p) => p.length > shared + 1 && p[shared] === parts[0][shared])) shared++;
    return parts.map((p) => p.slice(shared).join("/") || p.join("/"));
  }
  const names = shortNames(data.runs.map((run) => run.path));
  const details = new Map(data.details.map((detail) => [detail.run, detail]));
  for (const detail of data.details) {
    detail.series = {};
    for (const [name, curve] of Object.entries(detail.curves)) detail.series[name] = points(curve.points);
    detail.clock = {tokens: points(detail.tokens), time: points(detail.time)};
  }
  const problemsOf = (run) => data.problems.filter((problem) => problem.run === run).map((problem) => problem.text);

  // A short line in the style of a run.
  function swatch(run) {
    const line = make("line", {x1: 0, x2: 24, y1: 6, y2: 6, stroke: color(run), "stroke-width": 5, "stroke-dasharray": dash(run)});
    return make("svg", {class: "swatch", viewBox: "0 0 24 12", "aria-hidden": "true"}, line);
  }

  // ---- the table of runs ----

  function sizeOf(run) {
    return run.layers === null ? "–" : run.layers + " × " + run.width;
  }

  function bestOf(index) {
    const run = data.runs[index];
    if (run["best_val/loss"] !== null) return run["best_val/loss"];
    const detail = details.get(index);
    const curve = detail && detail.series["val/loss"];
    return curve && curve.length > 0 ? Math.min(...curve.map((point) => point[1])) : run["val/loss"];
  }

  const speedOf = (index) => {
    const detail = details.get(index);
    return detail ? median((detail.series.tokens_per_second || []).map((point) => point[1])) : NaN;
  };
  const memoryOf = (index) => {
    const detail = details.get(index);
    return detail && detail.memory ? Object.values(detail.memory).reduce((sum, part) => sum + part, 0) : NaN;
  };

  const columns = [
    {title: "run", left: true, value: (i) => names[i], show: (i) => make("span", {title: data.runs[i].path}, details.has(i) ? swatch(i) : "", names[i])},
    {title: "state", left: true, value: (i) => data.runs[i].state,
      show: (i) => make("span", {class: remarks(i).length > 0 ? "problem" : "", title: remarks(i).join("; ")}, data.runs[i].state)},
    {title: "kind", left: true, value: (i) => data.runs[i].architecture || "–"},
    {title: "size", value: (i) => (data.runs[i].layers || 0) * 1e6 + (data.runs[i].width || 0), show: (i) => sizeOf(data.runs[i])},
    {title: "step", value: (i) => data.runs[i].step,
      show: (i) => data.runs[i].step === null ? "–" : data.runs[i].step + (data.runs[i].steps === null ? "" : " of " + data.runs[i].steps)},
    {title: "train loss", value: (i) => data.runs[i]["train/loss"], show: (i) => number(data.runs[i]["train/loss"])},
    {title: "best val loss", value: bestOf, show: (i) => number(bestOf(i))},
    {title: "tokens/s", value: speedOf, show: (i) => human(speedOf(i))},
    {title: "memory", value: memoryOf, show: (i) => human(memoryOf(i), "B")},
    {title: "time", value: (i) => data.runs[i].time, show: (i) => seconds(data.runs[i].time)},
    {title: "parameters", value: (i) => (details.get(i) || {}).parameters, show: (i) => human((details.get(i) || {}).parameters)},
    {title: "context", value: (i) => data.runs[i].context, show: (i) => data.runs[i].context === null ? "–" : String(data.runs[i].context)},
    {title: "attention", left: true, value: (i) => data.runs[i].structure || "–"},
    {title: "positions", left: true, value: (i) => data.runs[i].positions || "–"},
  ];

  function remarks(index) {
    const run = data.runs[index];
    const detail = details.get(index);
    const lines = run.problem ? [run.problem] : [];
    for (const problem of problemsOf(index)) if (!lines.includes(problem)) lines.push(problem);
    if (detail && detail.skipped > 0) lines.push(detail.skipped + " steps skipped: numbers were not finite");
    return lines;
  }

  function compare(a, b) {
    const missing = (value) => value === null || value === undefined || Number.isNaN(value);
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return typeof a === "string" ? a.localeCompare(b, "en", {numeric: true}) : a - b;
  }

  // What is not as it should be, and where.
  function drawRemarks(element) {
    const lines = data.problems.filter((problem) => problem.run === null).map((problem) => problem.text);
    data.runs.forEach((run, i) => lines.push(...remarks(i).map((line) => names[i] + ": " + line)));
    const running = data.runs.filter((run) => run.state === "running").length;
    if (running > 0) element.append(note(running + (running === 1 ? " run is" : " runs are") + " still at work: the page shows how far it had come when it was written."));
    if (lines.length === 0) return;
    const list = make("ul", {class: "problem"}, ...lines.slice(0, 30).map((line) => make("li", {}, line)));
    if (lines.length > 30) list.append(make("li", {}, "and " + (lines.length - 30) + " more"));
    element.append(list);
  }

  function drawTable() {
    const element = section("runs", "Runs");
    const order = data.runs.map((run, i) => i);
    const body = make("tbody");
    let sorted = null;
    let down = false;
    let filter = "";
    const cell = (column, i) => make("td", {class: column.left ? "left" : ""},
      column.show ? column.show(i) : String(column.value(i)));
    const fill = () => {
      clear(body);
      for (const i of order) {
        if (filter && !data.runs[i].path.toLowerCase().includes(filter)) continue;
        body.append(make("tr", {}, ...columns.map((column) => cell(column, i))));
      }
    };
    const sort = (column, head) => {
      down = sorted === column ? !down : false;
      sorted = column;
      order.sort((a, b) => compare(column.value(a), column.value(b)) * (down ? -1 : 1) || a - b);
      for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      fill();
    };
    const heads = columns.map((column) => {
      const head = make("th", {scope: "col", class: column.left ? "left" : ""});
      head.append(make("button", {type: "button", click: () => sort(column, head)}, column.title));
      return head;
    });
    if (data.found > data.runs.length) element.append(note(data.found + " runs were found; the table has the first " + data.runs.length + "."));
    if (data.runs.length > data.details.length)
      element.append(note("Curves, configurations, speed and memory are those of the first " + data.details.length + " runs, which have a colour. Name other runs, or use ", code("--curves N"), ", to see others."));
    if (data.runs.length > 20) {
      const search = make("input", {type: "search", input: (event) => { filter = event.target.value.toLowerCase(); fill(); }});
      element.append(make("div", {class: "bar"}, make("label", {}, "Names with", search)));
    }
    fill();
    element.append(make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of runs"},
      make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)));
    drawRemarks(element);
    element.append(note("tokens/s is the median of training. memory is an estimate of what training holds: weights, gradients, moments, a step and a batch."));
  }

  // ---- axes ----

  function ticks(low, high, count) {
    const span = high - low || 1;
    const power = Math.pow(10, Math.floor(Math.log10(span / count)));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => span / s <= count) || 10 * power;
    const result = [];
    for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) result.push(Math.abs(value) < step * 1e-9 ? 0 : value);
    return result;
  }

  function logTicks(low, high) {
    const result = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const factor of [1, 2, 5]) {
        const value = factor * Math.pow(10, power);
        if (value >= low * 0.999 && value <= high * 1.001) result.push(value);
      }
    return result.length > 8 ? result.filter((v) => Number.isInteger(Math.round(Math.log10(v) * 1e6) / 1e6)) : result.length > 1 ? result : ticks(low, high, 4).filter((v) => v > 0);
  }

  // A scale from [low, high] to pixels.
  function scale(low, high, from, to, logarithmic) {
    const f = logarithmic ? Math.log : (v) => v;
    const a = f(low);
    const b = f(high);
    const at = (value) => from + (b > a ? (f(value) - a) / (b - a) : 0.5) * (to - from);
    at.invert = (pixel) => {
      const value = a + (pixel - from) / (to - from) * (b - a);
      return logarithmic ? Math.exp(value) : value;
    };
    at.ticks = (count) => logarithmic ? logTicks(low, high) : ticks(low, high, count);
    return at;
  }

  const path = (list, x, y) => list.map((p, i) => (i > 0 ? "L" : "M") + x(p[0]).toFixed(1) + " " + y(p[1]).toFixed(1)).join("");

  function drawAxes(svg, box, x, y, labels) {
    for (const value of x.ticks(labels.xTicks || 8)) {
      svg.append(make("line", {class: "grid", x1: x(value), x2: x(value), y1: box.top, y2: box.bottom}));
      svg.append(make("text", {x: x(value), y: box.bottom + 20, "text-anchor": "middle"}, labels.showX ? labels.showX(value) : human(value)));
    }
    for (const value of y.ticks(labels.yTicks || 6)) {
      svg.append(make("line", {class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value)}));
      svg.append(make("text", {x: box.left - 8, y: y(value) + 5, "text-anchor": "end"}, number(value)));
    }
    svg.append(make("rect", {class: "axis", x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top}));
    svg.append(make("text", {x: box.right, y: box.bottom + 41, "text-anchor": "end"}, labels.x));
  }

  // ---- curves ----

  // A view: metrics that are drawn together, the first one thin and the last one thick.
  const views = [
    {title: "loss: training thin, validation thick (nats)", metrics: ["train/loss", "val/loss"]},
    {title: "accuracy: training thin, validation thick", metrics: ["train/accuracy", "val/accuracy"]},
    ...["train/objective", "perplexity", "bits_per_byte", "bits_per_character", "word_perplexity", "lr", "grad_norm", "tokens_per_second", "mfu",
      "ridge/mended_pivots", "ahca/chunks", "ahca/tokens", "ahca/depth"].map((name) => ({title: name, metrics: [name]})),
  ].filter((view) => data.details.some((detail) => view.metrics.some((name) => (detail.series[name] || []).length > 0)));

  // Where the clock of a run stands at a step: between its points, linearly.
  function clockAt(list, step) {
    if (list.length === 0) return NaN;
    let low = 0;
    let high = list.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (list[middle][0] <= step) low = middle;
      else high = middle;
    }
    const [x0, y0] = list[low];
    const [x1, y1] = list[high];
    return x1 > x0 ? y0 + (y1 - y0) * Math.min(1, Math.max(0, (step - x0) / (x1 - x0))) : y0;
  }

  // The exponential mean with weight `factor` of the past, corrected at the beginning (Kingma and Ba 2015).
  function smooth(list, factor) {
    if (factor === 0) return list;
    let sum = 0;
    let weight = 1;
    return list.map(([x, y]) => {
      sum = factor * sum + (1 - factor) * y;
      weight *= factor;
      return [x, sum / (1 - weight)];
    });
  }

  function drawCurves() {
    const element = section("curves", "Curves");
    if (views.length === 0) {
      element.append(note("No run has recorded a metric yet."));
      return;
    }
    const size = {width: 1200, height: 560};
    const box = {left: 86, right: size.width - 16, top: 14, bottom: size.height - 52};
    const state = {view: 0, x: "step", smoothing: 0, log: false, hidden: new Set(), zoom: null, cursor: null, from: null};
    const svg = make("svg", {viewBox: "0 0 " + size.width + " " + size.height, tabindex: 0, role: "application",
      "aria-label": "Curves. Arrow keys move the cursor, plus and minus zoom, zero shows everything."});
    const tip = make("div", {class: "tip", hidden: true});
    const spoken = make("p", {class: "note", "aria-live": "polite"});
    const select = (label, options, change) => make("label", {}, label, make("select", {change: (event) => { change(event.target.selectedIndex); draw(); }},
      ...options.map((words) => make("option", {}, words))));
    const axes = ["step", "tokens", "time"];
    const factor = () => state.smoothing === 0 ? 0 : 1 - Math.pow(10, -2.3 * state.smoothing / 100);
    const shown = make("output", {}, "off");
    const bar = make("div", {class: "bar"},
      select("show", views.map((view) => view.title), (i) => { state.view = i; state.zoom = null; }),
      select("over", ["step", "tokens", "time (seconds)"], (i) => { state.x = axes[i]; state.zoom = null; }),
      make("label", {}, "smoothing", make("input", {type: "range", min: 0, max: 100, value: 0, input: (event) => {
        state.smoothing = Number(event.target.value);
        shown.textContent = state.smoothing === 0 ? "off" : factor().toFixed(3);
        draw();
      }}), shown),
      make("label", {}, make("input", {type: "checkbox", change: (event) => { state.log = event.target.checked; draw(); }}), "logarithmic"),
      make("button", {type: "button", click: () => { state.zoom = null; draw(); }}, "show all"));
    const legend = make("div", {class: "legend", role: "group", "aria-label": "Runs that are drawn"});

    function curves() {
      const list = [];
      for (const detail of data.details) {
        if (state.hidden.has(detail.run)) continue;
        const view = views[state.view];
        view.metrics.forEach((name, m) => {
          let series = detail.series[name] || [];
          if (series.length === 0) return;
          if (state.x !== "step") series = series.map(([step, y]) => [clockAt(detail.clock[state.x], step), y]);
          if (state.log) series = series.filter((point) => point[1] > 0);
          list.push({run: detail.run, name, thick: m + 1 === view.metrics.length, raw: series, line: smooth(series, factor())});
        });
      }
      // Thick curves are drawn last, over the noise of the thin ones.
      return list.filter((curve) => curve.line.length > 0).sort((a, b) => a.thick - b.thick);
    }

    function ranges(list) {
      const xs = list.map((c) => [c.line[0][0], c.line[c.line.length - 1][0]]);
      const x = state.zoom || [Math.min(...xs.map((r) => r[0])), Math.max(...xs.map((r) => r[1]))];
      const inside = list.flatMap((c) => c.line.filter((p) => p[0] >= x[0] && p[0] <= x[1]).map((p) => p[1])).sort((a, b) => a - b);
      if (inside.length === 0) return {x, y: [0, 1]};
      const low = inside[0];
      const high = inside[inside.length - 1];
      const room = state.log ? Math.pow(high / low || 1, 0.04) : (high - low || Math.abs(high) || 1) * 0.04;
      return {x, y: state.log ? [low / room, high * room] : [low - room, high + room]};
    }

    let current = null;
    function draw() {
      const list = curves();
      clear(svg);
      state.cursor = null;
      tip.hidden = true;
      if (list.length === 0) {
        svg.append(make("text", {x: size.width / 2, y: size.height / 2, "text-anchor": "middle"}, "no points"));
        current = null;
        return;
      }
      const range = ranges(list);
      const x = scale(range.x[0], range.x[1], box.left, box.right, false);
      const y = scale(range.y[0], range.y[1], box.bottom, box.top, state.log);
      drawAxes(svg, box, x, y, {x: state.x === "time" ? "time (seconds of training)" : state.x});
      svg.append(make("clipPath", {id: "inside"}, make("rect", {x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top})));
      const lines = make("g", {"clip-path": "url(#inside)", fill: "none", "stroke-linejoin": "round"});
      for (const curve of list) {
        const style = {stroke: color(curve.run), "stroke-dasharray": dash(curve.run)};
        if (state.smoothing > 0) lines.append(make("path", {d: path(curve.raw, x, y), ...style, "stroke-width": 1, opacity: 0.25}));
        lines.append(make("path", {d: path(curve.line, x, y), ...style, "stroke-width": curve.thick ? 3 : 1.4, opacity: curve.thick ? 1 : list.length > 8 ? 0.45 : 0.75}));
        if (curve.thick && curve.line.length <= 40)
          for (const point of curve.line) lines.append(make("circle", {cx: x(point[0]), cy: y(point[1]), r: 3.5, fill: color(curve.run)}));
      }
      svg.append(lines);
      current = {list, x, y, range, line: make("line", {class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden"}),
        area: make("rect", {class: "select", y: box.top, height: box.bottom - box.top, visibility: "hidden"})};
      svg.append(current.area, current.line);
    }

    function nearest(list, x) {
      let low = 0;
      let high = list.length - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (list[middle][0] < x) low = middle + 1;
        else high = middle;
      }
      return low > 0 && x - list[low - 1][0] < list[low][0] - x ? list[low - 1] : list[low];
    }

    // Values at a place of the axis: of each run its curves in one line.
    function point(value) {
      if (current === null) return;
      state.cursor = Math.min(current.range.x[1], Math.max(current.range.x[0], value));
      const pixel = current.x(state.cursor);
      current.line.setAttribute("x1", pixel);
      current.line.setAttribute("x2", pixel);
      current.line.setAttribute("visibility", "visible");
      const rows = new Map();
      for (const curve of current.list) {
        const row = rows.get(curve.run) || {run: curve.run, words: [], order: Infinity};
        const [, y] = nearest(curve.line, state.cursor);
        row.words.push((views[state.view].metrics.length > 1 ? curve.name.split("/")[0] + " " : "") + number(y));
        if (curve.thick || row.order === Infinity) row.order = y;
        rows.set(curve.run, row);
      }
      const sorted = [...rows.values()].sort((a, b) => a.order - b.order);
      clear(tip);
      tip.append(make("div", {}, make("b", {}, state.x + " " + (state.x === "time" ? seconds(state.cursor) : human(Math.round(state.cursor))))));
      for (const row of sorted.slice(0, 12)) tip.append(make("div", {}, swatch(row.run), row.words.join(", ") + "  " + names[row.run]));
      if (sorted.length > 12) tip.append(make("div", {}, "and " + (sorted.length - 12) + " more"));
      tip.hidden = false;
      const width = svg.clientWidth || size.width;
      const left = pixel / size.width * width;
      tip.style.left = left > width * 0.6 ? "" : left + 14 + "px";
      tip.style.right = left > width * 0.6 ? width - left + 14 + "px" : "";
      tip.style.top = "12px";
      return sorted;
    }

    const place = (event) => {
      const rect = svg.getBoundingClientRect();
      return Math.min(box.right, Math.max(box.left, (event.clientX - rect.left) / rect.width * size.width));
    };
    const zoomTo = (a, b) => {
      if (b > a) state.zoom = [a, b];
      draw();
    };
    svg.addEventListener("pointerdown", (event) => {
      if (current === null || event.button !== 0) return;
      state.from = place(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (current === null) return;
      const at = place(event);
      point(current.x.invert(at));
      if (state.from === null) return;
      current.area.setAttribute("x", Math.min(at, state.from));
      current.area.setAttribute("width", Math.abs(at - state.from));
      current.area.setAttribute("visibility", "visible");
    });
    svg.addEventListener("pointerup", (event) => {
      if (current === null || state.from === null) return;
      const at = place(event);
      const from = state.from;
      state.from = null;
      if (Math.abs(at - from) > 6) zoomTo(current.x.invert(Math.min(at, from)), current.x.invert(Math.max(at, from)));
      else current.area.setAttribute("visibility", "hidden");
    });
    svg.addEventListener("pointerleave", () => {
      tip.hidden = true;
      if (current !== null) current.line.setAttribute("visibility", "hidden");
    });
    svg.addEventListener("dblclick", () => { state.zoom = null; draw(); });
    svg.addEventListener("keydown", (event) => {
      if (current === null) return;
      const [low, high] = current.range.x;
      const middle = state.cursor === null ? (low + high) / 2 : state.cursor;
      const span = (high - low) / 2;
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        const sorted = point(middle + (event.key === "ArrowLeft" ? -1 : 1) * (high - low) / 60);
        spoken.textContent = tip.firstChild.textContent + ": " + sorted.slice(0, 4).map((row) => names[row.run] + " " + row.words.join(", ")).join("; ");
      } else if (event.key === "+" || event.key === "=") {
        zoomTo(Math.max(low, middle - span / 2), Math.min(high, middle + span / 2));
      } else if (event.key === "-") {
        state.zoom = [middle - span * 2, middle + span * 2];
        draw();
      } else if (event.key === "0" || event.key === "Escape") {
        state.zoom = null;
        draw();
      } else {
        return;
      }
      event.preventDefault();
    });

    for (const detail of data.details) {
      const button = make("button", {type: "button", "aria-pressed": "true", title: data.runs[detail.run].path, click: () => {
        if (!state.hidden.delete(detail.run)) state.hidden.add(detail.run);
        button.setAttribute("aria-pressed", String(!state.hidden.has(detail.run)));
        draw();
      }}, swatch(detail.run), names[detail.run]);
      legend.append(button);
    }
    draw();
    dark.addEventListener("change", draw);
    const most = Math.max(...data.details.flatMap((d) => Object.values(d.curves).map((c) => c.all)));
    const kept = Math.max(...data.details.flatMap((d) => Object.values(d.curves).map((c) => c.points.x.length)));
    element.append(note("A run has one colour. Drag over a part to enlarge it, double-click to see everything."), bar,
      make("div", {class: "chart"}, svg, tip), spoken, legend);
    if (most > kept)
      element.append(note("Curves have up to " + most + " points; at most " + kept + " of each are here: of equal parts the least and the greatest, so that no peak is lost. Tokens and times are interpolated between up to 200 points of a run."));
  }

  // ---- differences of configurations ----

  function drawDifferences() {
    const element = section("differences", "Configuration differences");
    if (data.details.length < 2) {
      element.append(note("There is one run: nothing to compare."));
      return;
    }
    if (data.differences.length === 0) {
      element.append(note("The configurations do not differ."));
      return;
    }
    // Values that differ, and values that some runs do not have at all.
    const differs = (row) => new Set(row.values.filter((value) => value !== null)).size > 1;
    const values = data.differences.filter(differs);
    const partial = data.differences.filter((row) => !differs(row));
    const show = (value) => value === null ? "–" : value === "" ? "none" : value;
    const table = (list) => make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Differences"}, make("table", {},
      make("thead", {}, make("tr", {}, make("th", {class: "left", scope: "col"}, "option"),
        ...data.details.map((detail) => make("th", {class: "left", scope: "col"}, swatch(detail.run), names[detail.run])))),
      make("tbody", {}, ...list.map((row) => make("tr", {}, make("th", {class: "left", scope: "row"}, row.key), ...row.values.map((value) => make("td", {class: "left"}, show(value))))))));
    element.append(note("Only options that differ. – : without effect in this run, or its configuration cannot be read."));
    if (values.length > 0) element.append(table(values));
    if (partial.length > 0)
      element.append(make("details", {open: values.length === 0}, make("summary", {}, "Options that have an effect only in some runs, with one value there (" + partial.length + ")"), table(partial)));
  }

  // ---- samples ----

  function drawSamples() {
    const element = section("samples", "Samples over time");
    if (data.samples.length === 0) {
      element.append(note("None was recorded. ", code("hark train ... --sample-tokens 200"), " generates a text with every checkpoint and keeps it in the run's samples.jsonl."));
      return;
    }
    for (const run of data.samples) {
      const rows = run.texts.map((sample) => make("tr", {}, make("th", {scope: "row"}, String(sample.step)),
        make("td", {class: "left sample"}, make("b", {}, sample.prompt, sample.prompt_cut ? " … " : ""), sample.text, sample.text_cut ? " …" : null)));
      element.append(make("h3", {}, swatch(run.run), names[run.run]),
        note(run.count > run.texts.length ? run.texts.length + " of " + run.count + " samples, evenly spaced." : run.count + (run.count === 1 ? " sample." : " samples.")),
        make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Samples of " + names[run.run]}, make("table", {},
          make("thead", {}, make("tr", {}, make("th", {scope: "col"}, "step"), make("th", {class: "left", scope: "col"}, "text after the prompt, which is bold"))),
          make("tbody", {}, ...rows))));
    }
  }

  // ---- kernels ----

  function drawPanel(panel) {
    const size = {width: 420, height: 290};
    const box = {left: 62, right: 410, top: 10, bottom: 238};
    const svg = make("svg", {viewBox: "0 0 " + size.width + " " + size.height, role: "img", "aria-label": panel.title});
    const lists = panel.curves.map(points).map((list) => panel.rates ? list : list.filter((p) => p[0] >= 1));
    const whole = lists[0];
    if (whole.length === 0) return svg;
    // Terms that are far below the kernel do not matter, and do not widen the axis: they are cut.
    const ys = whole.map((p) => p[1]);
    let low = Math.min(...ys);
    let high = Math.max(...ys);
    for (const list of lists.slice(1)) for (const [, value] of list) high = Math.max(high, value);
    if (panel.rates) low = Math.min(low, ...lists.slice(1).flatMap((list) => list.map((p) => p[1])));
    const room = panel.rates ? 0 : (high - low || 1) * 0.05;
    const x = scale(whole[0][0], whole[whole.length - 1][0], box.left, box.right, !panel.rates);
    const y = scale(panel.rates ? low / 1.2 : low - room, panel.rates ? high * 1.2 : high + room, box.bottom, box.top, panel.rates);
    drawAxes(svg, box, x, y, {x: panel.rates ? "pair" : "distance (tokens)", xTicks: 5, yTicks: 5});
    const clip = "panel" + drawPanel.count++;
    svg.append(make("clipPath", {id: clip}, make("rect", {x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top})));
    const lines = make("g", {fill: "none", "clip-path": "url(#" + clip + ")"});
    lists.slice(1).forEach((list, i) => lines.append(make("path", {d: path(list, x, y), stroke: color(panel.run + 1 + i), "stroke-width": 1.5, "stroke-dasharray": "5 4"})));
    lines.append(make("path", {d: path(whole, x, y), stroke: color(panel.run), "stroke-width": 3}));
    svg.append(lines);
    return svg;
  }
  drawPanel.count = 0;

  function drawKernels() {
    const element = section("kernels", "Learned positions");
    if (data.kernels.length === 0) {
      element.append(note("No run here has a positional kernel (", code("--positional"), ") or learned rotary rates (", code("--rotary-learned"), ")."));
      return;
    }
    element.append(note("Kernels: log G over the distance; dashed: the terms of the sum. Rates: the angle per token of each pair; dashed: at the beginning of training."));
    for (const detail of data.details) {
      const panels = data.kernels.filter((panel) => panel.run === detail.run);
      if (panels.length === 0) continue;
      const grid = make("div", {class: "panels"});
      const fill = () => {
        clear(grid);
        for (const panel of panels)
          grid.append(make("figure", {}, make("figcaption", {}, panel.title + (panel.rates ? ": angle per token (radians)" : ": log G")), make("div", {class: "chart"}, drawPanel(panel))));
      };
      fill();
      dark.addEventListener("change", fill);
      element.append(make("h3", {}, swatch(detail.run), names[detail.run]), grid);
    }
    if (data.kernels_left_out > 0) element.append(note(data.kernels_left_out + " more are left out (", code("--kernels N"), ")."));
  }

  // ---- evaluations ----

  // Background of a part of a whole, and text that is legible on it.
  function shade(part, cold) {
    const strong = part > 0.55;
    return "background: rgba(var(" + (cold ? "--cold" : "--heat") + "), " + part.toFixed(3) + ");" + (strong ? "color: var(--page);" : "");
  }

  function drawMatrix(evaluation) {
    const classes = evaluation.classes;
    const head = make("tr", {}, make("th", {class: "left"}, "class \\ predicted"), ...classes.map((name) => make("th", {scope: "col"}, name)), make("th", {}, "recall"));
    const rows = evaluation.confusion.map((row, actual) => {
      const sum = row.reduce((a, b) => a + b, 0);
      return make("tr", {}, make("th", {class: "left", scope: "row"}, classes[actual]),
        ...row.map((count, predicted) => make("td", {class: actual === predicted ? "hit" : "", style: shade(sum > 0 ? count / sum : 0, actual !== predicted),
          title: classes[actual] + " predicted as " + classes[predicted] + ": " + count}, String(count))),
        make("td", {}, sum > 0 ? (100 * row[actual] / sum).toFixed(1) + " %" : "–"));
    });
    return make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Confusion matrix"},
      make("table", {class: "matrix"}, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  function evaluationTitle(evaluation) {
    return [evaluation.run, evaluation.checkpoint, evaluation.part, evaluation.context ? "context " + evaluation.context : null].filter(Boolean).join(", ");
  }

  function drawPositions(list) {
    const size = {width: 1200, height: 400};
    const box = {left: 86, right: 1184, top: 14, bottom: 348};
    const svg = make("svg", {viewBox: "0 0 " + size.width + " " + size.height, role: "img", "aria-label": "Loss by position in the window"});
    const lines = list.map((evaluation) => evaluation.positions.filter((p) => p.loss !== null).map((p) => [Math.sqrt(Math.max(1, p.first + 1) * (p.last + 1)), p.loss]));
    const all = lines.flat();
    if (all.length === 0) return svg;
    const x = scale(Math.min(...all.map((p) => p[0])), Math.max(...all.map((p) => p[0])), box.left, box.right, true);
    const low = Math.min(...all.map((p) => p[1]));
    const high = Math.max(...all.map((p) => p[1]));
    const y = scale(low - (high - low) * 0.05, high + (high - low) * 0.05, box.bottom, box.top, false);
    drawAxes(svg, box, x, y, {x: "tokens that the model has read", xTicks: 8});
    lines.forEach((line, i) => svg.append(make("path", {d: path(line, x, y), fill: "none", stroke: color(i), "stroke-dasharray": dash(i), "stroke-width": 3})));
    return svg;
  }

  function drawEvaluations() {
    const element = section("evaluations", "Evaluations and confusion matrices");
    if (data.evaluations.length === 0) {
      element.append(note("None was given. ", code("hark eval RUN --json > eval.json"), " measures a run, and ", code("hark report RUN --evaluation eval.json"), " shows its confusion matrix (models of classes) and its loss by position."));
      return;
    }
    const titles = data.evaluations.map(evaluationTitle);
    const rows = data.evaluations.map((evaluation, i) => make("tr", {}, make("td", {class: "left"}, titles[i]), make("td", {}, number(evaluation.loss)),
      make("td", {}, evaluation.accuracy === undefined ? "–" : (100 * evaluation.accuracy).toFixed(2) + " %"),
      make("td", {}, evaluation.majority === undefined ? "–" : (100 * evaluation.majority).toFixed(2) + " %"), make("td", {}, String(evaluation.targets === undefined ? "–" : evaluation.targets))));
    element.append(make("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Evaluations"}, make("table", {},
      make("thead", {}, make("tr", {}, make("th", {class: "left"}, "evaluation"), ...["loss", "accuracy", "majority baseline", "targets"].map((t) => make("th", {}, t)))), make("tbody", {}, ...rows))));
    const positions = data.evaluations.filter((evaluation) => (evaluation.positions || []).length > 1);
    if (positions.length > 0) {
      element.append(make("h3", {}, "Loss by position in the window"), make("div", {class: "chart"}, drawPositions(positions)),
        make("div", {class: "key"}, ...positions.map((evaluation, i) => make("span", {}, swatch(i), evaluationTitle(evaluation)))));
    }
    data.evaluations.forEach((evaluation, i) => {
      if (evaluation.confusion) element.append(make("h3", {}, "Confusion matrix: " + titles[i]), note("Rows are classes, columns predictions; colours are fractions of the row."), drawMatrix(evaluation));
      else if (evaluation.class_count > 0) element.append(note(titles[i] + ": its confusion matrix has too many classes for the page (" + evaluation.class_count + ")."));
    });
    if (data.evaluations_left_out > 0) element.append(note(data.evaluations_left_out + " more evaluations are left out."));
  }

  // ---- chunks ----

  // Line ends and tabs become visible, and a token without a text: one that the vocabulary does not know.
  const visible = (token) => token === "" ? "\ufffd" : token.replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5");

  function drawSequence(sequence, tokens) {
    const line = make("div", {class: "tokens"});
    // Words of a vocabulary of words have no blanks between them.
    const between = tokens && !tokens.some((token) => /\s/.test(token)) && tokens.some((token) => token.length > 1) ? " " : "";
    const deepest = Math.max(1, ...(sequence.depth || [1]));
    let at = 0;
    sequence.chunks.forEach((length, k) => {
      const words = tokens ? tokens.slice(at, at + length).map(visible).join(between) : length + (length === 1 ? " token" : " tokens");
      const depth = sequence.depth && sequence.depth.length === sequence.chunks.length ? sequence.depth[k] : null;
      const part = depth === null ? (k % 2 ? 0.1 : 0.22) : 0.08 + 0.3 * depth / deepest;
      line.append(make("span", {class: "chunk", style: "background: rgba(var(--heat), " + part.toFixed(2) + ")", title: "chunk " + (k + 1) + ": tokens " + at + " to " + (at + length - 1) + (depth === null ? "" : ", layers " + depth)},
        words, depth === null ? null : make("sub", {}, String(depth))));
      at += length;
    });
    const lines = [line];
    if (sequence.global > 0) lines.push(note("Selected global tokens: " + sequence.selected.join(", ") + " of " + sequence.global + "."));
    return lines;
  }

  function drawChunks() {
    const element = section("chunks", "Chunks of architecture ahca");
    const texts = data.texts.filter((text) => text.chunks);
    const decided = data.evaluations.filter((evaluation) => evaluation.decisions);
    if (texts.length + decided.length === 0) {
      element.append(note("None. A run of architecture ahca and ", code("--text TEXT"), " (or ", code("--file FILE"), ") show how the text is divided; ", code("hark eval RUN --decisions N --json"), " and ", code("--evaluation"), " show it for examples."));
      return;
    }
    element.append(note("A frame is a chunk; the small number is how many layers it has, and chunks with more have a stronger colour. \ufffd is a token that the vocabulary lacks."));
    for (const text of texts) element.append(make("h3", {}, swatch(text.run), names[text.run]), ...text.chunks.flatMap((sequence) => drawSequence(sequence, text.tokens)));
    for (const evaluation of decided)
      element.append(make("h3", {}, evaluationTitle(evaluation)), ...evaluation.decisions.flatMap((sequence) => drawSequence(sequence, null)));
  }

  // ---- attention maps ----

  const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const rgb = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(Number);

  // A weight from its byte: the root in 127 steps, with its sign.
  const weightOf = (byte, most) => Math.sign(byte - 128) * Math.pow((byte - 128) / 127, 2) * most;

  function paintMap(canvas, head, count) {
    const drawing = canvas.getContext("2d");
    const image = drawing.createImageData(count, count);
    const heat = rgb("--heat");
    const cold = rgb("--cold");
    const page = dark.matches ? [20, 23, 28] : [255, 255, 255];
    for (let i = 0; i < count * count; i++) {
      const part = Math.abs(head.bytes[i] - 128) / 127;
      const to = head.bytes[i] < 128 ? cold : heat;
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = page[c] + (to[c] - page[c]) * part;
      image.data[4 * i + 3] = 255;
    }
    canvas.width = canvas.height = count;
    drawing.putImageData(image, 0, 0);
  }

  const startsCell = (head, index) => (head.bits[index >> 3] >> (index & 7) & 1) === 1;

  // The keys of the cell of an entry: all with the same weight. Without cells the key alone.
  function cellOf(head, row, key, count) {
    if (!head.bits) return [key, key];
    let first = key;
    let last = key;
    while (first > 0 && !startsCell(head, row * count + first)) first--;
    while (last + 1 < count && !startsCell(head, row * count + last + 1)) last++;
    return [first, last];
  }

  // A map with its tokens, and for a hierarchy the lines around its cells.
  function paintLarge(canvas, head, tokens, chosen) {
    const count = tokens.length;
    const cell = Math.max(8, Math.min(22, Math.floor(760 / count)));
    const margin = 110;
    const ratio = window.devicePixelRatio || 1;
    const size = margin + cell * count + 4;
    canvas.width = canvas.height = size * ratio;
    canvas.style.width = canvas.style.height = size + "px";
    const drawing = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    drawing.scale(ratio, ratio);
    const small = document.createElement("canvas");
    paintMap(small, head, count);
    drawing.imageSmoothingEnabled = false;
    drawing.drawImage(small, margin, margin, cell * count, cell * count);
    drawing.strokeStyle = style.getPropertyValue("--text");
    drawing.lineWidth = 0.7;
    drawing.strokeRect(margin, margin, cell * count, cell * count);
    for (let row = 0; head.bits && row < count; row++)
      for (let key = 0; key < count; key++) {
        const [first, last] = cellOf(head, row, key, count);
        if (last > first && first === key && head.bytes[row * count + key] !== 128) drawing.strokeRect(margin + first * cell, margin + row * cell, (last - first + 1) * cell, cell);
      }
    drawing.font = Math.max(9, Math.min(14, cell)) + "px system-ui, sans-serif";
    const every = Math.ceil(12 / cell);
    for (let i = 0; i < count; i += every) {
      drawing.fillStyle = style.getPropertyValue(chosen && (chosen[0] === i || (chosen[1] <= i && i <= chosen[2])) ? "--accent" : "--text");
      const word = visible(tokens[i]).replace(/ /g, "\u00b7").slice(0, 12);
      drawing.textAlign = "right";
      drawing.fillText(word, margin - 6, margin + i * cell + cell * 0.75);
      drawing.save();
      drawing.translate(margin + i * cell + cell * 0.75, margin - 6);
      drawing.rotate(-Math.PI / 2);
      drawing.textAlign = "left";
      drawing.fillText(word, 0, 0);
      drawing.restore();
    }
    return {margin, cell};
  }

  function drawText(element, text) {
    const large = make("div", {class: "large"});
    const canvas = make("canvas", {tabindex: 0, role: "img"});
    const words = make("p", {class: "note", "aria-live": "polite"}, "Queries are rows, keys are columns. Hover over the map, or use the arrow keys.");
    const state = {head: null, row: 0, key: 0, place: null, title: ""};
    const heads = text.layers.flatMap((layer) => layer.heads.map((head, h) => {
      head.bytes = bytesOf(head.map);
      if (head.cells) head.bits = bytesOf(head.cells);
      head.title = "layer " + layer.layer + ", head " + h + " (" + layer.kind + ")";
      return head;
    }));
    const count = text.tokens.length;
    const describe = () => {
      const [first, last] = cellOf(state.head, state.row, state.key, count);
      const weight = weightOf(state.head.bytes[state.row * count + state.key], state.head.max) * (last - first + 1);
      const keys = text.tokens.slice(first, last + 1).map(visible).join("");
      words.textContent = state.head.title + ": query " + state.row + " \u201c" + visible(text.tokens[state.row]) + "\u201d, " + (last > first ? "cell of keys " + first + " to " + last : "key " + first) + " \u201c" + keys + "\u201d: weight about " + number(weight);
      state.place = paintLarge(canvas, state.head, text.tokens, [state.row, first, last]);
    };
    const choose = (head) => {
      state.head = head;
      canvas.setAttribute("aria-label", head.title + ". Arrow keys move over queries and keys.");
      state.place = paintLarge(canvas, head, text.tokens, null);
      words.textContent = head.title + ". Queries are rows, keys are columns. Hover over the map, or use the arrow keys.";
    };
    const move = (row, key) => {
      if (state.row === row && state.key === key) return;
      state.row = Math.min(count - 1, Math.max(0, row));
      state.key = Math.min(count - 1, Math.max(0, key));
      describe();
    };
    canvas.addEventListener("pointermove", (event) => {
      const rect = canvas.getBoundingClientRect();
      const row = Math.floor((event.clientY - rect.top - state.place.margin) / state.place.cell);
      const key = Math.floor((event.clientX - rect.left - state.place.margin) / state.place.cell);
      if (row >= 0 && key >= 0 && row < count && key < count) move(row, key);
    });
    canvas.addEventListener("keydown", (event) => {
      const steps = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
      if (!steps) return;
      move(state.row + steps[0], state.key + steps[1]);
      event.preventDefault();
    });
    const maps = make("div", {class: "maps"});
    for (const head of heads) {
      const thumbnail = make("canvas", {"aria-hidden": "true", style: "width: 132px; height: 132px"});
      paintMap(thumbnail, head, count);
      dark.addEventListener("change", () => paintMap(thumbnail, head, count));
      maps.append(make("figure", {}, make("button", {type: "button", "aria-label": "Enlarge " + head.title, click: () => choose(head)}, thumbnail), make("figcaption", {}, head.title.replace(/ \(.*/, ""))));
    }
    const kinds = [...new Set(text.layers.filter((layer) => layer.heads.length > 0).map((layer) => layer.kind))].join(", ");
    element.append(make("h3", {}, swatch(text.run), names[text.run] + ": " + kinds), maps);
    const missing = text.layers.reduce((sum, layer) => sum + layer.all_heads - layer.heads.length, 0);
    if (missing > 0) element.append(note(missing + " more heads are left out, so that the page stays small: fewer runs, or fewer ", code("--tokens"), ", show more."));
    if (heads.length === 0) return;
    large.append(canvas);
    element.append(words, large);
    choose(heads[0]);
    dark.addEventListener("change", () => choose(state.head));
  }

  function drawMaps() {
    const element = section("maps", "Attention over a text");
    const texts = data.texts.filter((text) => text.layers);
    if (texts.length === 0) {
      element.append(note(data.text_given ? "No run here has attention maps of the text; the table of runs has the reasons." : "No text was given. "));
      if (!data.text_given) element.lastChild.append(code("--text TEXT"), " or ", code("--file FILE"), " shows how the heads of each run read it.");
      return;
    }
    element.append(note("Weights of the keys for every query, as the run's own attention computes them, with positional kernels, gates and hierarchies. The colour is the root of the weight; orange: negative weights of kernel ridge attention. In a hierarchy frames are cells: keys that share one coarse key, and so one weight."));
    for (const text of texts) drawText(element, text);
  }

  // ---- speed and memory ----

  function bars(rows, most, parts) {
    const grid = make("div", {class: "hbar"});
    for (const row of rows) {
      const track = make("div", {class: "track", role: "img", "aria-label": names[row.run] + ": " + row.words});
      row.values.forEach((value, i) => track.append(make("div", {title: parts ? parts[i] + ": " + human(value, "B") : "", style: "width: " + (100 * value / most).toFixed(2) + "%; background: " + color(parts ? i : row.run)})));
      grid.append(make("div", {class: "name", title: names[row.run]}, swatch(row.run), names[row.run]), track, make("div", {}, row.words));
    }
    return grid;
  }

  function drawSpeed() {
    const element = section("speed", "Speed and memory");
    const body = make("div");
    const fill = () => {
      clear(body);
      const fast = data.details.filter((detail) => Number.isFinite(speedOf(detail.run)));
      if (fast.length === 0) body.append(note("No run has recorded its speed yet."));
      else {
        body.append(make("h3", {}, "Tokens per second of training (median)"), bars(fast.map((detail) => {
          const mfu = median((detail.series.mfu || []).map((point) => point[1]));
          return {run: detail.run, values: [speedOf(detail.run)], words: human(speedOf(detail.run)) + (Number.isFinite(mfu) ? ", " + (100 * mfu).toFixed(1) + " % of peak" : "")};
        }), Math.max(...fast.map((detail) => speedOf(detail.run)))));
      }
      const known = data.details.filter((detail) => detail.memory);
      if (known.length === 0) {
        body.append(note("The memory of a run can be estimated when it has a checkpoint."));
        return;
      }
      const parts = ["weights", "gradients", "moments", "step", "batch"];
      body.append(make("h3", {}, "Memory of training, estimated on this machine"), make("div", {class: "key"}, ...parts.map((name, i) => make("span", {},
        make("span", {class: "swatch", style: "background: " + color(i)}), name))), bars(known.map((detail) => ({run: detail.run,
        values: parts.map((name) => detail.memory[name]), words: human(memoryOf(detail.run), "B")})), Math.max(...known.map((detail) => memoryOf(detail.run))), parts));
    };
    fill();
    dark.addEventListener("change", fill);
    element.append(body);
  }

  // ---- the page ----

  document.getElementById("title").textContent = data.title;
  const states = {};
  for (const run of data.runs) states[run.state] = (states[run.state] || 0) + 1;
  document.getElementById("subtitle").textContent = data.found + (data.found === 1 ? " run" : " runs") + " (" +
    Object.entries(states).map(([state, count]) => count + " " + state).join(", ") + "), written by hark " + data.hark;
  for (const draw of [drawTable, drawCurves, drawDifferences, drawSamples, drawKernels, drawEvaluations, drawChunks, drawMaps, drawSpeed]) {
    try {
      draw();
    } catch (error) { // a part that cannot be drawn does not take the others with it
      main.append(note("A part of this page cannot be shown: " + error));
      console.error(error);
    }
  }
  document.body.dataset.ready = "true"; // what scripts/check-report.sh waits for
})();
