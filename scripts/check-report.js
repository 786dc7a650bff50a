// check-report.js - uses a page of hark report as a reader does: scripts/check-report.sh appends it to a copy of the page. What is wrong becomes an
// error in the console; at the end the page has data-used="true".
"use strict";
(() => {
  const check = (condition, what) => {
    if (!condition) throw new Error("check-report: " + what);
  };
  const all = (selector, within) => [...(within || document).querySelectorAll(selector)];
  const fire = (element, type, members) => element.dispatchEvent(Object.assign(new Event(type, {bubbles: true}), members || {}));
  SVGElement.prototype.setPointerCapture = () => {}; // these pointers are made up

  // every column of the table sorts, up and down
  const rows = () => all("#runs tbody tr").map((row) => row.textContent);
  for (const button of all("#runs thead button")) {
    button.click();
    const up = rows();
    check(button.parentNode.getAttribute("aria-sort") === "ascending", "not sorted: " + button.textContent);
    button.click();
    check(rows().length === up.length, "rows are lost by sorting");
    check(button.parentNode.getAttribute("aria-sort") === "descending", "not sorted down: " + button.textContent);
  }

  // curves
  const chart = document.querySelector("#curves .chart svg");
  if (chart !== null) {
    const tip = document.querySelector("#curves .tip");
    const lines = () => all("path", chart).map((path) => path.getAttribute("d")).join("|");
    const labels = () => all("text", chart).map((text) => text.textContent).join("|");
    const at = (part) => {
      const box = chart.getBoundingClientRect();
      return {clientX: box.left + box.width * part, clientY: box.top + box.height / 2, button: 0, pointerId: 1};
    };
    const whole = lines();
    check(whole.length > 0, "no curves");
    check(!/NaN|Infinity/.test(whole), "a curve has no number");
    fire(chart, "pointermove", at(0.4));
    check(!tip.hidden && tip.children.length > 1, "no values at the cursor");
    fire(chart, "pointerdown", at(0.3));
    fire(chart, "pointermove", at(0.6));
    fire(chart, "pointerup", at(0.6));
    check(lines() !== whole, "dragging does not enlarge");
    fire(chart, "dblclick");
    check(lines() === whole, "a double click does not show everything");
    for (const key of ["ArrowRight", "ArrowLeft", "+", "-"]) fire(chart, "keydown", {key});
    fire(chart, "keydown", {key: "0"});
    check(lines() === whole, "the key 0 does not show everything");
    fire(chart, "pointerleave");
    check(tip.hidden, "the values stay");
    const [view, over] = all("#curves select");
    for (const select of [over, view])
      for (let i = select.options.length - 1; i >= 0; i--) {
        select.selectedIndex = i;
        fire(select, "change");
        check(!/NaN|Infinity/.test(lines() + labels()), "no number over " + over.value + ": " + view.value);
        fire(chart, "pointermove", at(0.5));
      }
    check(lines() === whole, "the first view is not the first again");
    const range = document.querySelector("#curves input[type=range]");
    range.value = 60;
    fire(range, "input");
    check(all("path", chart).length > whole.split("|").length, "smoothing draws no smooth curves");
    range.value = 0;
    fire(range, "input");
    const log = document.querySelector("#curves input[type=checkbox]");
    log.checked = true;
    fire(log, "change");
    check(!/NaN|Infinity/.test(lines()), "a logarithm is no number");
    log.checked = false;
    fire(log, "change");
    for (const button of all("#curves .legend button")) button.click();
    check(all("path", chart).length === 0, "hidden runs are drawn");
    for (const button of all("#curves .legend button")) button.click();
    check(lines() === whole, "runs do not come back");
  }

  // maps
  for (const button of all("#maps .maps button")) button.click();
  for (const canvas of all("#maps .large canvas")) {
    const words = canvas.parentNode.previousSibling;
    const before = words.textContent;
    for (const key of ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp"]) fire(canvas, "keydown", {key});
    check(words.textContent !== before && words.textContent.includes("weight about"), "no weight at the cursor");
    check(!/NaN|undefined/.test(words.textContent), words.textContent);
  }
  check(!/NaN|undefined|\[object/.test(document.getElementById("main").textContent), "the text has what is no number");
  document.body.dataset.used = "true";
})();
