// The Live view: rows come from the server, escaped, and are inserted at the top. Their number is
// limited; while paused, the newest are buffered.
"use strict";

(() => {
  const MOST = 200;
  const $ = (id) => document.getElementById(id);
  const rows = $("rows");
  const pause = $("pause");
  const pace = $("pace");
  let paused = false;
  let aside = [];
  let more = 0;
  let uncounted = false;

  const clock = (of) => {
    for (const time of of.querySelectorAll("time")) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      const two = (number) => String(number).padStart(2, "0");
      const milli = String(at.getMilliseconds()).padStart(3, "0");
      time.textContent = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${milli}`;
    }
  };

  const say = () => {
    const said = [];
    if (paused) said.push(aside.length ? `paused, ${aside.length}${aside.length >= MOST ? "+" : ""} new` : "paused");
    if (more) said.push(`about ${more.toLocaleString()} more than are shown`);
    else if (uncounted) said.push("not all decisions are shown");
    pace.textContent = said.join("; ");
  };

  const put = (list) => {
    // Keep the scroll position of a reader further down.
    const top = scrollY > 80 ? document.documentElement.scrollHeight : 0;
    for (const row of list) {
      const known = document.getElementById(row.id);
      if (known) {
        const focused = known.contains(document.activeElement);
        row.classList.toggle("chosen", known.classList.contains("chosen"));
        known.replaceWith(row);
        if (focused) focus(row);
      } else {
        row.classList.add("new");
        rows.prepend(row);
      }
    }
    while (rows.childElementCount > MOST) rows.lastElementChild.remove();
    if (rows.childElementCount) $("nothing").hidden = true;
    if (!rows.querySelector("tr[tabindex='0']")) rows.firstElementChild?.setAttribute("tabindex", "0");
    if (top) scrollBy(0, document.documentElement.scrollHeight - top);
  };

  const come = (html) => {
    const made = document.createElement("template");
    made.innerHTML = html;
    clock(made.content);
    const list = [...made.content.querySelectorAll("tr")];
    if (!paused) return put(list);
    for (const row of list) {
      const at = aside.findIndex((kept) => kept.id === row.id);
      if (at >= 0) aside[at] = row; else aside.push(row);
    }
    aside = aside.slice(-MOST);
    say();
  };

  const listen = (events) => {
    events.addEventListener("rows", (event) => {
      if (event.lastEventId) rows.dataset.after = event.lastEventId;
      come(event.data);
    });
    events.addEventListener("more", (event) => {
      if (event.data) more += Number(event.data) || 0; else uncounted = true;
      say();
    });
  };

  const focus = (row) => {
    rows.querySelector("tr[tabindex='0']")?.setAttribute("tabindex", "-1");
    row.tabIndex = 0;
    row.focus();
  };

  // The open decision, which the page may already contain.
  let opened = $("told")?.querySelector(".one")?.dataset.id ?? null;

  // Requests the open decision, and shows it or the error.
  const tell = (shown) => {
    const own = opened;
    const show = () => {
      if (opened !== own) return;
      clock($("told"));
      $("one").hidden = false;
      shown?.();
    };
    htmx.ajax("GET", `live?id=${own}`, { target: "#told", swap: "innerHTML" }).then(show, show);
  };

  const open = (row) => {
    rows.querySelector(".chosen")?.classList.remove("chosen");
    row.classList.add("chosen");
    opened = row.dataset.id;
    $("told").style.minHeight = "";
    tell(() => {
      $("one").scrollTop = 0;
      $("told").focus({ preventScroll: true });
    });
  };

  const close = () => {
    opened = null;
    if ($("one").hidden) return;
    $("one").hidden = true;
    const row = rows.querySelector(".chosen");
    row?.classList.remove("chosen");
    if (row) focus(row);
  };

  const toggle = () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
    if (!paused) {
      const list = aside;
      aside = [];
      more = 0;
      uncounted = false;
      put(list);
    }
    say();
  };

  const begin = () => {
    clock(document);
    pause.hidden = false;
    rows.firstElementChild?.setAttribute("tabindex", "0");
    pause.addEventListener("click", toggle);
    $("one-close").addEventListener("click", close);
    rows.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (!row || event.ctrlKey || event.metaKey || String(getSelection())) return;
      event.preventDefault();
      focus(row);
      open(row);
    });
    rows.addEventListener("keydown", (event) => {
      const row = event.target.closest("tr");
      const to = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling,
        Home: rows.firstElementChild, End: rows.lastElementChild }[event.key];
      if (to) { event.preventDefault(); focus(to); }
      if (event.key === "Enter" && row) { event.preventDefault(); open(row); }
    });
    addEventListener("keydown", (event) => {
      const typing = event.target.closest?.("input, select, textarea");
      if (event.key === "Escape") close();
      if (event.key === "p" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) toggle();
    });
    const wanted = $("wanted");
    wanted.addEventListener("change", () => wanted.requestSubmit());
    // Empty fields are left out of the URL.
    wanted.addEventListener("submit", () => {
      for (const field of wanted.elements) if (field.name && !field.value) field.disabled = true;
    });
    addEventListener("pageshow", () => { for (const field of wanted.elements) field.disabled = false; });
    document.addEventListener("stream", (event) => listen(event.detail));
    // The active policy may decide differently now.
    document.body.addEventListener("changed", () => {
      if (!opened) return;
      // Its parts arrive one after the other: keep the height, so that the text does not move.
      $("told").style.minHeight = `${$("told").offsetHeight}px`;
      tell();
    });
  };

  if (rows) begin();
})();
